"""Tokenizers beside the tokenizers library, in one run and on one core: MB of text a second.

    tokenizer.py [--rounds N] [--check]

The tokenizers are trained by the library in the forms of GPT-2, Llama 3, Qwen and Llama 2
(tests/interop/test_tokenizer.py has the forms); the texts are tinyshakespeare, sources in C, and
sentences in many scripts, each 4 MB at least.  Rounds take turns, the quickest of each counts, and
each round begins with an empty cache.  The library encodes the text whole, and line by line, and
the quicker of both counts.  --check runs one round of little text, and its figures mean nothing.

TOKENIZE names build/tests/interop/tokenize.  Exit status 77: the library is not there.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
os.environ.setdefault("TOKENIZE", os.path.join("build", "tests", "interop", "tokenize"))

import test_tokenizer as forms  # noqa: E402

from tokenizers import Tokenizer  # noqa: E402


def library_seconds(library, text):
    best = float("inf")
    for parts in ([text], text.splitlines(keepends=True)):
        start = time.process_time()
        for part in parts:
            library.encode(part, add_special_tokens=False)
        best = min(best, time.process_time() - start)
    return best


def our_seconds(path, text):
    done = subprocess.run([os.environ["TOKENIZE"], path, "time", "1"], input=text.encode(),
                          stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--form", nargs="*", default=["gpt2", "llama3", "qwen", "llama2"])
    args = parser.parse_args()
    least = 50000 if args.check else 4000000
    texts = {"shakespeare": forms.shakespeare(), "C": forms.sources(".c", least),
             "many scripts": forms.WORLD}
    print(f"{'':10}{'text':14}{'dptrain':>10}{'tokenizers':>12}   MB/s a core")
    with tempfile.TemporaryDirectory() as folder:
        for form in args.form:
            path = os.path.join(folder, form + ".json")
            forms.FORMS[form]().save(path)
            library = Tokenizer.from_file(path)
            for name, text in texts.items():
                if not text:
                    continue
                text = (text * (least // len(text) + 1))[:least]
                ours = theirs = float("inf")
                for _ in range(1 if args.check else args.rounds):
                    ours = min(ours, our_seconds(path, text))
                    theirs = min(theirs, library_seconds(library, text))
                n = len(text.encode()) / 1e6
                print(f"{form:10}{name:14}{n / ours:10.1f}{n / theirs:12.2f}", flush=True)


if __name__ == "__main__":
    main()
