#!/usr/bin/env python3
"""language_model - makes the folder of a small language model, to be trained from scratch.

    python3 language_model.py llama input.txt llama/     15.7 million parameters with 4096 tokens
    python3 language_model.py qwen2 input.txt qwen2/     the same, with Qwen 2's shape

The folder gets a tokenizer of its own, trained on the text, and the config.json that says the
network's shape; no weights: model.init is random.  Needs the package tokenizers.
"""
import argparse
import json
import os

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

# Qwen 2's form of a conversation.
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
            "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}")
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SHAPE = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8,
         "num_attention_heads": 6, "num_key_value_heads": 6, "max_position_embeddings": 1024,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
         "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
KINDS = {"llama": {"architectures": ["LlamaForCausalLM"]},
         "qwen2": {"architectures": ["Qwen2ForCausalLM"], "num_key_value_heads": 2}}


def train_tokenizer(text, n_tokens):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train([text], trainers.BpeTrainer(
        vocab_size=n_tokens, special_tokens=MARKS, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def write(folder, name, content):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kind", choices=KINDS)
    options.add_argument("text")
    options.add_argument("folder")
    options.add_argument("--tokens", type=int, default=4096)
    given = options.parse_args()

    tokenizer = train_tokenizer(given.text, given.tokens)
    os.makedirs(given.folder, exist_ok=True)
    tokenizer.save(os.path.join(given.folder, "tokenizer.json"))
    write(given.folder, "tokenizer_config.json",
          {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": MARKS[0],
           "chat_template": TEMPLATE})
    write(given.folder, "config.json",
          {"model_type": given.kind, **SHAPE, **KINDS[given.kind],
           "vocab_size": tokenizer.get_vocab_size()})


if __name__ == "__main__":
    main()
