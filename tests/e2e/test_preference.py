"""model.loss dpo: a small Llama of a config.json alone learns which of two answers is preferred.
Losses are the same on any number of ranks and after a resume, the first one is log 2, and jobs that
cannot be trained so are refused before any rank is waited for."""

import csv
import json
import math
import os
import random

import dp
import training
from test_texts import END, TEMPLATE, tokenizer

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 260,
          "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
          "num_attention_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
          "initializer_range": 0.2, "eos_token_id": END}
JOB = {"model.import": "net", "model.init.name": "random", "model.loss": "dpo",
       "model.lora.rank": 4, "model.lora.alpha": 16, "data.format": "text",
       "data.path": "pairs.jsonl", "train.global_batch": 10, "train.epochs": 4,
       "optimizer.name": "adamw", "optimizer.lr": 0.01, "report.every_steps": 1}


def lines():
    """Answers with an "a" are preferred; the last batch of an epoch is a short one."""
    draw = random.Random(3)
    for i in range(60):
        prompt = "".join(draw.choices("cdef", k=draw.randint(1, 9)))
        good, bad = ("".join(draw.choices("cd" + letter * 4, k=draw.randint(1, 6))) + letter
                     for letter in "ab")
        if i % 3 == 0:
            said, good, bad = ([{"role": role, "content": text}] for role, text in (
                ("user", prompt), ("assistant", good), ("assistant", bad)))
            yield {"prompt": said, "chosen": good, "rejected": bad} if i % 2 else {
                "chosen": [*said, *good], "rejected": [*said, *bad]}
        else:
            yield {"prompt": prompt, "chosen": good, "rejected": bad}


class Preference(training.Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("net"))
        self.write("pairs.jsonl", "".join(json.dumps(line) + "\n" for line in lines()))
        for name, content in (("config", CONFIG), ("tokenizer", tokenizer()),
                              ("tokenizer_config", {"eos_token": "<end>",
                                                    "chat_template": TEMPLATE})):
            self.write(f"net/{name}.json", json.dumps(content))

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def train(self, run, n=1, **more):
        return self.run_driver("--run-dir", run, *dp.EXACT, *(("--local",) if n > 1 else ()), n=n,
                               job={**JOB, **more})

    def test_preference(self):
        told = self.train("one")
        self.assertIn("of 108 answers are cut", told.text)
        with open(self.path("one", "metrics.csv"), encoding="ascii", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 24)  # of 54 pairs
        self.assertAlmostEqual(float(rows[0]["loss"]), math.log(2), 6)
        first, *_, last = self.events("epoch", "one")
        self.assertLess(last["validation_loss"], 0.8 * math.log(2))
        self.assertEqual(last["validation_accuracy"], 1)
        self.assertLess(first["train_accuracy"], last["train_accuracy"])
        for n, more in ((2, {}), (3, {"train.accumulate": 2, "train.recompute": "blocks"})):
            self.train(f"run{n}", n, **more)
            self.assert_close(self.losses(f"run{n}"), self.losses("one"))
        self.train("again", **{"train.max_steps": 12})
        self.run_driver("--run-dir", "again", *dp.EXACT, "--resume", "--set", "train.max_steps=24",
                        job=None)
        self.assertEqual(self.final_losses_of("again"), self.losses("one"))
        self.check_served("one")

    def final_losses_of(self, run):
        return list({row[0]: row for row in self.losses(run)}.values())

    def check_served(self, run):
        """The tuned network is a language model as before."""
        for words in (["evaluate", run], ["sample", run, "c", "--tokens", "3"],
                      ["merge", self.path("merged.safetensors"), run],
                      ["export", self.path("net.onnx"), run]):
            self.assert_exit(self.start([dp.DRIVER, *words]), dp.FINISHED)

    def test_refused(self):
        self.write("texts.jsonl", '{"text": "some text"}\n')
        self.write("plain.txt", "some text")
        for more, wanted in (
                ({"model.lora.rank": 0}, r"there is no model.lora; want model.lora"),
                ({"data.pack": "true"}, r"want data.pack false"),
                ({"model.loss": "{logits: dpo, other: mse}"}, r"want dpo as the only loss"),
                ({"model.loss": "{name: dpo, beta: 0}"}, r"beta is 0, want a number above 0"),
                ({"train.class_weights": "[1, 2]"}, r"train.class_weights needs model.loss"),
                ({"data.path": "texts.jsonl"},
                 r'line 1: it has the keys "text"; want three texts "prompt", "chosen"'),
                ({"data.path": "plain.txt", "data.tokenizer": "chars"},
                 r"data.tokenizer is chars, whose text has none; want data.tokenizer FILE"),
                ({"data.format": "digits", "data.path": None, "model.context": 16},
                 r"samples of data.format digits are no pairs; want data.format text")):
            with self.subTest(**more):
                job = {**JOB, **more}
                job = {key: job[key] for key in job if job[key] is not None}
                told = self.run_driver(n=2, job=job, status=dp.USAGE)
                self.assertRegex(told.text, wanted)
        told = self.run_driver(n=2, job={"model.arch": "gpt", "model.loss": "dpo"},
                               status=dp.USAGE)
        self.assertIn("want model.import: FOLDER in place of model.arch", told.text)


if __name__ == "__main__":
    dp.main()
