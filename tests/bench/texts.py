"""A data set of texts becomes tokens, beside the tokenizers library, in one run and on one core.

    texts.py [--mb N] [--rounds N] [--check] [--build DIR]

The data are a folder of .jsonl files with a document of some thousand characters a line; tokenizers
are trained by the library in the forms of GPT-2, Llama 3 and Qwen (tests/interop/test_tokenizer.py
has them).  Ours is `dpdriver --check` of a job: its first run writes the file of tokens, and the
second finds it.  Theirs reads the lines, encodes each text, and writes the numbers with the end
token between them to a file.  Seconds are of CPU time, start and end of the processes included, the
quickest of the rounds, which take turns.  --check runs one round of little text, and its figures
mean nothing.

Exit status 77: the library is not there.
"""
import argparse
import array
import json
import os
import subprocess
import sys
import tempfile

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "interop"))
os.environ.setdefault("TOKENIZE", "")

import test_tokenizer as forms  # noqa: E402

END = "<|eot|>"
LINE = 4000  # characters of a document


def encode_all(tokenizer, folder, out):
    """The library's side: run in a process of its own, so that its CPU time is known."""
    from tokenizers import Tokenizer
    library = Tokenizer.from_file(tokenizer)
    end = library.token_to_id(END)
    numbers = array.array("i")
    with open(out, "wb") as file:
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".jsonl"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as lines:
                for line in lines:
                    numbers.extend(library.encode(json.loads(line)["text"]).ids)
                    numbers.append(end)
            numbers.tofile(file)
            numbers = array.array("i")


def seconds(argv):
    """CPU seconds of a process."""
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(argv)}\n{text.decode()}")
    return usage.ru_utime + usage.ru_stime


def write_corpus(folder, text, n_bytes):
    os.mkdir(folder)
    written = 0
    for part in range(4):
        with open(os.path.join(folder, f"{part}.jsonl"), "w", encoding="utf-8") as file:
            while written < n_bytes * (part + 1) // 4:
                at = written * 7919 % max(len(text) - LINE, 1)
                line = text[at:at + LINE]
                file.write(json.dumps({"text": line}, ensure_ascii=False) + "\n")
                written += len(line.encode())
    return written / 1e6


def remove_tokens(folder):
    for name in os.listdir(folder):
        if name.startswith(".dptrain-"):
            os.unlink(os.path.join(folder, name))


def measure(driver, form, work, corpus, rounds):
    """The quickest seconds of our first run, of our second, and of the library."""
    tokenizer = os.path.join(work, "tokenizer.json")
    forms.FORMS[form]().save(tokenizer)
    sets = {"data.format": "text", "data.path": corpus, "data.tokenizer": tokenizer,
            "data.end_token": END, "model.arch": "gpt", "model.layers": 1, "model.heads": 1,
            "model.width": 8, "model.context": 64}
    ours = [driver, "--nranks", "1", "--check",
            *(word for k, v in sets.items() for word in ("--set", f"{k}={v}"))]
    theirs = [sys.executable, os.path.abspath(__file__), "--encode", tokenizer, corpus,
              os.path.join(work, "numbers")]
    best = [float("inf")] * 3
    for _ in range(rounds):
        remove_tokens(corpus)
        best = [min(best[k], seconds(argv)) for k, argv in enumerate((ours, ours, theirs))]
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", default="build")
    parser.add_argument("--form", nargs="*", default=["gpt2", "llama3", "qwen"])
    parser.add_argument("--encode", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.encode:
        encode_all(*args.encode)
        return
    if args.check:
        args.mb, args.rounds, args.form = 0.2, 1, args.form[:1]
    driver = os.path.join(args.build, "driver", "dpdriver")
    texts = {"shakespeare": forms.shakespeare(), "C": forms.sources(".c", 4000000),
             "many scripts": forms.WORLD * 200}
    print(f"{'':10}{'text':14}{'MB/s':>8}{'tokenizers':>12}{'second run':>12}   of one core")
    with tempfile.TemporaryDirectory() as work:
        for name, text in texts.items():
            if not text:
                continue
            corpus = os.path.join(work, name.replace(" ", "-"))
            mb = write_corpus(corpus, text, args.mb * 1e6)
            for form in args.form:
                first, again, library = measure(driver, form, work, corpus, args.rounds)
                print(f"{form:10}{name:14}{mb / first:8.1f}{mb / library:12.2f}{again:10.2f} s",
                      flush=True)


if __name__ == "__main__":
    main()
