"""Text from a Llama of 15 million parameters beside transformers, in one run and on one thread:
tokens a second, one new token at a time, with a cache of keys and values on both sides.

    generate.py [--rounds N] [--tokens N] [--check]

The network has 8 layers of width 288, 6 heads and a vocabulary of 32,000, in float32, with random
weights; the text has 32 tokens, and the most likely token is taken each time.  Rounds take turns,
and the quickest of each counts.  The texts must be equal.  --check runs one round of 8 tokens, and
its figures mean nothing.

DPDRIVER names dpdriver.  Exit status 77: transformers is not there.
"""
import argparse
import json
import os
import string
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("DPDRIVER", os.path.join("build", "driver", "dpdriver"))

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))

import find_torch  # noqa: E402

find_torch.need("torch", "transformers", "tokenizers", "numpy")

import numpy as np  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

VOCAB, CONTEXT, GIVEN = 32000, 256, 32
LETTERS = string.ascii_letters


def words():
    """Tokens of three letters, so that a text of letters has one form alone"""
    return [a + b + c for a in LETTERS[:32] for b in LETTERS[:32] for c in LETTERS[:32]][:VOCAB]


def make(folder):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=288, num_hidden_layers=8, num_attention_heads=6,
        num_key_value_heads=6, intermediate_size=768, max_position_embeddings=CONTEXT,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    network = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(3 if weight.ndim == 2 else 1)
    network.save_pretrained(folder)
    one = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={word: i for i, word in enumerate(words())}, merges=[], unk_token=words()[0]))
    one.decoder = tokenizers.decoders.Fuse()
    one.save(os.path.join(folder, "tokenizer.json"))
    np.save(os.path.join(folder, "tokens.npy"), np.arange(CONTEXT + 1, dtype=np.int32))


def begin_run(folder):
    """One step that changes hardly anything, for a checkpoint"""
    job = {"model.import": folder, "model.context": CONTEXT, "data.format": "tokens",
           "data.path": folder, "data.train": "tokens.npy", "data.validation": "none",
           "train.global_batch": 1, "train.max_steps": 1, "optimizer.name": "sgd",
           "optimizer.lr": 1e-9}
    sets = [word for key, value in job.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([os.environ["DPDRIVER"], "--nranks", "1", "--threads", "1", "--port", "0",
                    "--run-dir", os.path.join(folder, "run"), *sets], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ours(folder, tokens):
    done = subprocess.run(
        [os.environ["DPDRIVER"], "sample", os.path.join(folder, "run"), "x" * GIVEN, "--threads",
         "1", "--temperature", "0", "--tokens", str(tokens), "--log-format", "json"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    told = json.loads(done.stdout)
    return told["tokens_per_second"], told["text"][GIVEN:], told["given_tokens"]


def theirs(network, given, tokens):
    """Without the pass over the given tokens, as ours is counted."""
    with torch.no_grad():
        seconds = []
        for n in (1, tokens):
            start = time.perf_counter()
            out = network.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=n,
                                   min_new_tokens=n, do_sample=False, pad_token_id=0)
            seconds.append(time.perf_counter() - start)
    all_words = words()
    text = "".join(all_words[i] for i in out[0, given.shape[1]:].tolist())
    return (tokens - 1) / (seconds[1] - seconds[0]), text


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    rounds, tokens = (1, 8) if args.check else (args.rounds, args.tokens)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        begin_run(folder)
        network = transformers.LlamaForCausalLM.from_pretrained(
            os.path.join(folder, "run", "checkpoints", "latest")).eval()
        best = [0.0, 0.0]
        for _ in range(rounds):
            speed, text, n_given = ours(folder, tokens)
            best[0] = max(best[0], speed)
            speed, want = theirs(network, torch.zeros(1, n_given, dtype=torch.int64), tokens)
            best[1] = max(best[1], speed)
            if text != want:
                sys.exit(f"the texts differ: {text[:60]} ... and {want[:60]} ...")
    print(f"dptrain {best[0]:.1f} tokens/s, transformers {best[1]:.1f}, "
          f"{best[0] / best[1]:.2f} times as many")


if __name__ == "__main__":
    main()
