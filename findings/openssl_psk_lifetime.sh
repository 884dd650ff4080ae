#!/usr/bin/env bash
# openssl_psk_lifetime.sh - how long a TLS 1.3 server takes a pre-shared key, OpenSSL 3.5.4.
#
# A key that both sides know beforehand reaches OpenSSL in an SSL_SESSION, which a program makes
# once and hands out by SSL_CTX_set_psk_find_session_callback to each connection.
#
# Guess: such a key has no lifetime.  The timeout of a session is about resumption and the cache,
#        and neither is used here.
# Seen:  SSL_SESSION_new gives it 304 s.  A server that has held it for longer goes on as if no key
#        had been offered, without a word that one was: it looks for a certificate, and fails with
#        "no suitable signature algorithm"; the client sees a handshake failure.  A client may hold
#        its own for as long as it likes.  SSL_SESSION_set_timeout on the server is the remedy.
#
# The library is the one in psycopg-binary 3.2.13, called by ctypes; nothing waits, as
# SSL_SESSION_set_time says when the session was made.
# Exit status: 0 if that is seen; 1 if not; 77 if the package cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip install -q --no-cache-dir --no-deps --target "$dir/site" psycopg-binary==3.2.13 \
    2>"$dir/log" || {
    tail -n 1 "$dir/log"
    exit 77
}
python3 - "$dir/site/psycopg_binary.libs" <<'PY'
import ctypes
import glob
import sys
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_size_t, c_ulong, c_void_p

crypto = ctypes.CDLL(glob.glob(sys.argv[1] + "/libcrypto*")[0], ctypes.RTLD_GLOBAL)
ssl = ctypes.CDLL(glob.glob(sys.argv[1] + "/libssl*")[0])
FIND = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, POINTER(c_void_p))
USE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_size_t),
                       POINTER(c_void_p))
for library, name, result, *words in (
        (crypto, "OpenSSL_version", c_char_p, c_int),
        (crypto, "ERR_get_error", c_ulong),
        (crypto, "ERR_reason_error_string", c_char_p, c_ulong),
        (crypto, "BIO_new_bio_pair", c_int, c_void_p, c_size_t, c_void_p, c_size_t),
        (ssl, "TLS_method", c_void_p),
        (ssl, "SSL_CTX_new", c_void_p, c_void_p),
        (ssl, "SSL_CTX_set_ciphersuites", c_int, c_void_p, c_char_p),
        (ssl, "SSL_CTX_set_psk_find_session_callback", None, c_void_p, FIND),
        (ssl, "SSL_CTX_set_psk_use_session_callback", None, c_void_p, USE),
        (ssl, "SSL_SESSION_new", c_void_p),
        (ssl, "SSL_SESSION_up_ref", c_int, c_void_p),
        (ssl, "SSL_SESSION_set1_master_key", c_int, c_void_p, c_char_p, c_size_t),
        (ssl, "SSL_SESSION_set_cipher", c_int, c_void_p, c_void_p),
        (ssl, "SSL_SESSION_set_protocol_version", c_int, c_void_p, c_int),
        (ssl, "SSL_SESSION_get_timeout", c_long, c_void_p),
        (ssl, "SSL_SESSION_set_timeout", c_long, c_void_p, c_long),
        (ssl, "SSL_SESSION_set_time", c_long, c_void_p, c_long),
        (ssl, "SSL_new", c_void_p, c_void_p),
        (ssl, "SSL_free", None, c_void_p),
        (ssl, "SSL_CIPHER_find", c_void_p, c_void_p, c_char_p),
        (ssl, "SSL_set_bio", None, c_void_p, c_void_p, c_void_p),
        (ssl, "SSL_set_connect_state", None, c_void_p),
        (ssl, "SSL_set_accept_state", None, c_void_p),
        (ssl, "SSL_do_handshake", c_int, c_void_p),
        (ssl, "SSL_is_init_finished", c_int, c_void_p)):
    function = getattr(library, name)
    function.restype, function.argtypes = result, words

NAME = ctypes.create_string_buffer(b"key")
DONE = "both sides are done"


def make_key(context, age, timeout=None):
    probe, key = ssl.SSL_new(context), ssl.SSL_SESSION_new()
    assert ssl.SSL_SESSION_set1_master_key(key, bytes(32), 32)
    assert ssl.SSL_SESSION_set_cipher(key, ssl.SSL_CIPHER_find(probe, b"\x13\x01"))
    assert ssl.SSL_SESSION_set_protocol_version(key, 0x0304)
    assert timeout is None or ssl.SSL_SESSION_set_timeout(key, timeout)
    ssl.SSL_SESSION_set_time(key, int(time.time()) - age)
    ssl.SSL_free(probe)
    return key


def reason():
    code = crypto.ERR_get_error()
    return crypto.ERR_reason_error_string(code).decode() if code else None


def shake(server_age, client_age, timeout=None):
    """What a server and a client that made their keys so many seconds ago come to."""
    context = ssl.SSL_CTX_new(ssl.TLS_method())
    assert ssl.SSL_CTX_set_ciphersuites(context, b"TLS_AES_128_GCM_SHA256")
    mine, theirs = make_key(context, server_age, timeout), make_key(context, client_age)

    def find(_ssl, _name, _length, out):
        out[0] = mine
        return ssl.SSL_SESSION_up_ref(mine)

    def use(_ssl, _md, name, length, out):
        name[0], length[0], out[0] = ctypes.addressof(NAME), 3, theirs
        return ssl.SSL_SESSION_up_ref(theirs)

    callbacks = FIND(find), USE(use)
    ssl.SSL_CTX_set_psk_find_session_callback(context, callbacks[0])
    ssl.SSL_CTX_set_psk_use_session_callback(context, callbacks[1])
    ends = c_void_p(), c_void_p()
    assert crypto.BIO_new_bio_pair(byref(ends[0]), 0, byref(ends[1]), 0)
    server, client = ssl.SSL_new(context), ssl.SSL_new(context)
    ssl.SSL_set_bio(server, ends[0], ends[0])
    ssl.SSL_set_bio(client, ends[1], ends[1])
    ssl.SSL_set_accept_state(server)
    ssl.SSL_set_connect_state(client)
    why = []
    for side in (client, server) * 3:
        ssl.SSL_do_handshake(side)
        said = reason()
        why += [f"{'server' if side == server else 'client'}: {said}"] if said else []
    done = ssl.SSL_is_init_finished(server) and ssl.SSL_is_init_finished(client)
    ssl.SSL_free(server)
    ssl.SSL_free(client)
    return DONE if done else why[0]


version = crypto.OpenSSL_version(0).decode()
default = ssl.SSL_SESSION_get_timeout(ssl.SSL_SESSION_new())
seen = {ages: shake(*ages) for ages in ((0, 0), (300, 0), (306, 0), (0, 100000),
                                        (100000, 0, 200000))}
print(f"{version}; a new session's timeout: {default} s")
print("server's age, client's age[, the server's timeout]: what they come to")
for ages, text in seen.items():
    print(f"{ages}: {text}")
wanted = dict.fromkeys(seen, DONE)
wanted[306, 0] = "server: no suitable signature algorithm"
sys.exit(0 if version.startswith("OpenSSL 3.5.4 ") and default == 304 and seen == wanted else 1)
PY
