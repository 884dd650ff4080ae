"""data.format: text with a tokenizer.json: a folder of texts trains as the same tokens do in a file
of numbers; prompts and conversations have the same losses on one, two and three ranks; all ranks
and runs share one file of tokens; bad lines end the driver before it listens."""

import json
import os
import struct

import dp
import training

END = 257
MARKS = {"<end>": END, "<|im_start|>": 258, "<|im_end|>": 259}
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
            "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}")
NET = {"model.arch": "gpt", "model.layers": 1, "model.heads": 2, "model.width": 16,
       "model.context": 16, "model.vocab": 260, "train.global_batch": 12, "train.epochs": 2,
       "optimizer.lr": 0.02, "data.path": "corpus", "data.format": "text"}


def byte_chars():
    """The characters that stand for bytes in the ByteLevel form."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def tokenizer():
    """Token b is byte b, and 256 is "th"."""
    return {"version": "1.0",
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                              "trim_offsets": True, "use_regex": False},
            "added_tokens": [{"id": number, "content": text, "special": True, "normalized": False}
                             for text, number in MARKS.items()],
            "model": {"type": "BPE", "merges": [["t", "h"]],
                      "vocab": {c: i for i, c in enumerate([*byte_chars(), "th"])}}}


def encode(text):
    return list(text.replace("th", "\0").encode().replace(b"\0", b"\xff"))


class Texts(training.Case):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("corpus", "more"))
        self.write("tokenizer.json", json.dumps(tokenizer()))
        self.write("tokenizer_config.json", json.dumps(
            {"eos_token": "<end>", "chat_template": TEMPLATE, "model_max_length": int(1e30)}))

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def train(self, run, *args, n=1, **job):
        return self.run_driver("--run-dir", run, *dp.EXACT, *(("--local",) if n > 1 else ()),
                               *args, n=n, job={**NET, "data.tokenizer": "tokenizer.json", **job})

    def token_files(self):
        return [name for name in os.listdir(self.path("corpus")) if name.startswith(".dptrain-")]

    def test_texts(self):
        texts = [f"the {i} of that, {i * i} to be or not to be\n" * 20 for i in range(12)]
        self.write("corpus/a.txt", texts[0])
        self.write("corpus/b.jsonl", "".join(json.dumps({"text": text}) + "\n"
                                             for text in texts[1:6]))
        for i, text in enumerate(texts[6:]):
            self.write(f"corpus/more/{i}.txt", text)
        self.train("text", **{"data.validation": "more"})
        self.assertEqual(len(self.token_files()), 2)

        def numbers(parts):
            tokens = [token for text in parts
                      for token in [*(256 if b == 0xff else b for b in encode(text)), END]]
            return dp.npy("<u2", (len(tokens),), struct.pack(f"<{len(tokens)}H", *tokens))

        for name, parts in (("train", texts), ("val", texts[6:])):
            with open(self.path(f"{name}.npy"), "wb") as file:
                file.write(numbers(parts))
        job = {**NET, "data.format": "tokens", "data.path": ".", "data.train": "train.npy",
               "data.validation": "val.npy"}
        self.run_driver("--run-dir", "numbers", *dp.EXACT, job=job)
        self.assertEqual(self.losses("text"), self.losses("numbers"))
        for n in (2, 3):
            again = self.train(f"text{n}", n=n, **{"data.validation": "more"})
            self.assert_close(self.losses(f"text{n}"), self.losses("text"))
            self.assertNotIn("become tokens", again.text)
        self.assertEqual(len(self.token_files()), 2)

    def test_examples(self):
        """Lengths differ, so the ranks have different numbers of targets"""
        lines = []
        for i in range(60):
            talk = [{"role": "user", "content": "q" * (i % 3)},
                    {"role": "assistant", "content": f"{i % 7}" * (1 + i % 4)}]
            lines.append({"messages": talk} if i % 2 else
                         {"prompt": "of " * (i % 5), "completion": f"the {i % 6}"})
        self.write("corpus/a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        for n in (1, 2, 3):
            job = {"model.context": 40, "data.validation": "last_tenth"}
            daemon = self.train(f"talk{n}", n=n, **job)
            self.assert_close(self.losses(f"talk{n}"), self.losses("talk1"))
            self.assertEqual("become tokens" in daemon.text, n == 1)
        cut = self.train("cut", **{"model.context": 12})
        self.assertRegex(cut.text, r"\d+ of 54 examples are cut at model.context, 12 tokens")

    def test_folders_tokenizer(self):
        """That of model.import, which a checkpoint has, too"""
        self.write("config.json", json.dumps({
            "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 260,
            "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "eos_token_id": END}))
        self.write("corpus/a.txt", "to be or not to be, that is the question. " * 60)
        job = {"model.import": ".", "model.init.name": "random", "data.format": "text",
               "data.path": "corpus", "train.global_batch": 8, "train.epochs": 1}
        self.run_driver("--run-dir", "run", job=job)
        with open(self.path("run", "job.yaml"), encoding="utf-8") as file:
            self.assertIn(f'  tokenizer: "{self.path("tokenizer.json")}"', file.read())
        self.assertTrue(os.path.exists(self.path("run", "checkpoints", "latest", "tokenizer.json")))
        self.write("config.json", json.dumps({
            "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 100,
            "max_position_embeddings": 16, "rms_norm_eps": 1e-5}))
        refused = self.run_driver("--run-dir", "small", job=job, status=dp.USAGE)
        self.assertIn("has 260 tokens, but the network has 100", refused.text)

    def test_bad_lines(self):
        """Told before any rank is waited for"""
        self.write("corpus/a.jsonl", '{"text": "x"}\n{"messages": [{"content": "x"}]}\n')
        refused = self.run_driver(job={**NET, "data.tokenizer": "."}, n=2, status=dp.USAGE)
        self.assertRegex(refused.text, r'corpus/a.jsonl: line 2: message 1 has no "role"; want')
        self.assertEqual(self.token_files(), [])
        refused = self.run_driver(job={**NET, "data.train": "a.jsonl"}, n=2, status=dp.USAGE)
        self.assertIn("data.train is for data.tokenizer FILE", refused.text)


if __name__ == "__main__":
    dp.main()
