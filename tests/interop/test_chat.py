"""Test of prompts and conversations (common/data/chat, token_maker) beside transformers, token for
token: apply_chat_template with templates of the forms that networks publish, by byte-level and
SentencePiece-style tokenizers.  The answers and their end marks are learnt, and nothing else.

It needs a Python with transformers (find_torch.py), and is skipped (77) without one.
"""
import json
import os
import subprocess
import tempfile
import unittest

import find_torch

find_torch.need("transformers", "tokenizers", "jinja2")

import test_tokenizer as forms  # noqa: E402
from tokenizers import AddedToken  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

EXAMPLES = os.environ["EXAMPLES"]
AUTO, CHATML, LLAMA3, MISTRAL, PHI3, GEMMA = range(6)

TURNS = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
         "{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}")
CHATML_LOOP = ("{% for message in messages %}{SYSTEM}{{'<|im_start|>' + message['role'] + '\\n' + "
               "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
QWEN2 = CHATML_LOOP.replace(
    "{SYSTEM}", "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n"
    "You are a helpful assistant.<|im_end|>\\n' }}{% endif %}")
QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a model, made by somebody. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools" }}
    {{- "<|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a model, it\\'s made by somebody.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or """ \
    """(message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
         "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
         "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = "
         "bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
         "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
MISTRAL1 = ("{{ bos_token }}{% for message in messages %}" + TURNS +
            "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
            "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}"
            "{% endif %}{% endfor %}")
MISTRAL2 = ("{{ bos_token }}{% for message in messages %}" + TURNS +
            "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
            "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}"
            "{% endif %}{% endfor %}")
MISTRAL3 = """{%- set loop_messages = messages %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {{- "[INST] " + message["content"] + "[/INST]" }}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""
MISTRAL_SPACED = MISTRAL3.replace('"[INST] "', '" [INST] "').replace('"[/INST]"', '" [/INST]"') \
    .replace("|trim", "")
TEKKEN = MISTRAL3.replace('"[INST] "', '"[INST]"').replace('" " + message["content"]|trim',
                                                           'message["content"]')
PHI_FIRST = ("{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') %}"
             "{{'<|user|>' + '\\n' + message['content'] + '<|end|>' + '\\n' + '<|assistant|>' + "
             "'\\n'}}{% elif (message['role'] == 'assistant') %}{{message['content'] + '<|end|>' + "
             "'\\n'}}{% endif %}{% endfor %}")
PHI = ("{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + "
       "message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + "
       "message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}"
       "{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}")
GEMMA2 = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role "
          "not supported') }}{% endif %}{% for message in messages %}" + TURNS +
          "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role "
          "= message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] "
          "| trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}"
          "{{'<start_of_turn>model\\n'}}{% endif %}")
GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
"""

# name: the template; the form that writes the same, if one does; its end mark; if it has a place
# for a system message
CASES = {
    "plain": (CHATML_LOOP.replace("{SYSTEM}", ""), CHATML, "<|im_end|>", True),
    "qwen2": (QWEN2, None, "<|im_end|>", True),
    "qwen2 lines": (QWEN2.replace("\\n", "\n"), None, "<|im_end|>", True),
    "qwen2.5": (QWEN25, None, "<|im_end|>", True),
    "llama3": (LLAMA, LLAMA3, "<|eot_id|>", True),
    "mistral v1": (MISTRAL1, None, "</s>", False),
    "mistral v2": (MISTRAL2, None, "</s>", False),
    "mistral v3": (MISTRAL3.replace("|trim", ""), MISTRAL, "</s>", False),
    "mistral v3 trimmed": (MISTRAL3, None, "</s>", False),
    "mistral spaced": (MISTRAL_SPACED, None, "</s>", False),
    "tekken": (TEKKEN, None, "</s>", False),
    "phi3 first": (PHI_FIRST, None, "<|end|>", False),
    "phi3": (PHI, None, "<|end|>", True),
    "gemma2": (GEMMA2, None, "<end_of_turn>", False),
    "gemma3": (GEMMA3, GEMMA, "<end_of_turn>", True),
}
MARKS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>",
         "<|eot_id|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<start_of_turn>",
         "<end_of_turn>", "[INST]", "[/INST]"]
SYSTEM = {"role": "system", "content": "Answer  in verse.\n"}
TEXTS = ["What is a \"king\"?", "  A man with a crown,\nand a\tsword.  ", "\n\nAnd a queen?",
         "Größer — 王后 👑", "Thanks!", "Ok ", "x", "\n"]


def conversations(has_system):
    talks = [[{"role": "assistant" if i % 2 else "user", "content": text}
              for i, text in enumerate(TEXTS[start:start + n])]
             for start, n in ((0, 2), (0, 4), (0, 8), (2, 6), (4, 2))]
    return talks + [[SYSTEM, *talk] for talk in talks if has_system]


def make(name):
    """A tokenizer of transformers, with the marks of all forms"""
    t = forms.FORMS[name]()
    t.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in MARKS])
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>")


class Chats(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_examples(self, lines, form=AUTO):
        path = os.path.join(self.folder, "talks.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for line in lines:
                print(json.dumps(line), file=file)
        return subprocess.run([EXAMPLES, os.path.join(self.folder, "tokenizer.json"), path,
                               str(form), self.folder], capture_output=True, text=True, check=False)

    def ours(self, lines, form=AUTO):
        done = self.run_examples(lines, form)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split() for line in done.stdout.splitlines()]
        return ([[int(word) for word in row] for row in rows],
                [[word[0] == "+" for word in row] for row in rows])

    def learnt_text(self, t, tokens, learnt):
        """The answers that are learnt, each with its end mark"""
        out, before = [], False
        for token, is_learnt in zip(tokens, learnt):
            if is_learnt and not before:
                out.append([])
            if is_learnt:
                out[-1].append(token)
            before = is_learnt
        return [t.decode(part) for part in out]

    def check(self, t, case, form, talks):
        tokens, learnt = self.ours([{"messages": talk, "id": i} for i, talk in enumerate(talks)],
                                   form)
        for i, talk in enumerate(talks):
            want = t.apply_chat_template(talk, tokenize=True, return_dict=False)
            self.assertEqual(tokens[i], want, f"{case} {form}: {t.decode(want)!r}")
            answers = [m["content"] for m in talk if m["role"] == "assistant"]
            got = self.learnt_text(t, tokens[i], learnt[i])
            self.assertEqual([text.replace(" ", "").replace("\n", "").replace("\t", "")
                              for text in got],
                             [(text + CASES[case][2]).replace(" ", "").replace("\n", "")
                              .replace("\t", "") for text in answers], f"{case} {form}")

    def test_templates(self):
        for kind in ("qwen", "llama2"):
            t = make(kind)
            for case, (template, form, _, has_system) in CASES.items():
                t.chat_template = template
                t.save_pretrained(self.folder)
                for choice in (AUTO, form) if form is not None else (AUTO,):
                    with self.subTest(tokenizer=kind, case=case, form=choice):
                        self.check(t, case, choice, conversations(has_system))

    def test_prompts(self):
        """The two texts are encoded as one"""
        for kind in ("gpt2", "llama3", "llama2", "gemma"):
            t = make(kind)
            t.save_pretrained(self.folder)
            rows = [{"prompt": a, "completion": b} for a, b in
                    (("Q: who?\nA:", " the king"), ("x = ", "12"), ("", "all of it"),
                     ("no space", "here"), ("lines\n", "\nmore\n"), ("Grö", "ße"))]
            tokens, learnt = self.ours(rows)
            for row, got, mask in zip(rows, tokens, learnt):
                with self.subTest(tokenizer=kind, row=row):
                    whole = t(row["prompt"] + row["completion"])["input_ids"]
                    if whole[-1] != t.eos_token_id:  # some tokenizers end a text by themselves
                        whole.append(t.eos_token_id)
                    self.assertEqual(got, whole)
                    alone = t(row["prompt"])["input_ids"] if row["prompt"] else []
                    same = 0
                    while same < min(len(alone), len(whole)) and alone[same] == whole[same]:
                        same += 1
                    self.assertEqual(mask, [False] * same + [True] * (len(got) - same))

    def test_refusals(self):
        t = make("qwen")
        talk = [{"messages": conversations(False)[0]}]
        for template, words in (
                ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "marks of no form"),
                (QWEN2 + "{% if '</think>' in content %}{% endif %}", "like chatml, but: it has "
                 "\"think>\""),
                ("{% set now = strftime_now('%d') %}" + LLAMA, "today's date")):
            t.chat_template = template
            t.save_pretrained(self.folder)
            done = self.run_examples(talk)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)
            self.assertIn("data.template: chatml, llama3, mistral, phi3 or gemma", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
