"""families - small networks of transformers, as torch.export writes them in training mode: the
table, and what makes a file of each.

A family is a class, a configuration without dropout, and the kind of its samples and labels:

    tokens      input_ids [B,T], and a class at each place: logits [B,T,V]
    class       input_ids [B,T], and one class: logits [B,C]
    image       pixel_values [B,3,S,S], and one class: logits [B,C]
    pixels      pixel_values [B,3,S,S], and a class at each pixel: logits [B,C,H,W]
"""
import torch
import transformers as t

LENGTH, VOCAB, CLASSES, EXPORTED = 16, 96, 10, 7

TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCAB,
        "intermediate_size": 128, "max_position_embeddings": 32, "pad_token_id": None}
GROUPED = {**TEXT, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
BERT = {**TEXT, "pad_token_id": 0, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LABELS = {"num_labels": CLASSES}

# name: (class, configuration, kind, side of an image)
FAMILIES = {
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=VOCAB, n_positions=32, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0), "tokens", None),
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(**GROUPED), "tokens", None),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(**GROUPED), "tokens", None),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**GROUPED, head_dim=16), "tokens", None),
    "gemma3": (t.Gemma3ForCausalLM, t.Gemma3TextConfig(**GROUPED, head_dim=16, sliding_window=8,
                                                       layer_types=["sliding_attention",
                                                                    "full_attention"]),
               "tokens", None),
    "phi3": (t.Phi3ForCausalLM, t.Phi3Config(**GROUPED), "tokens", None),
    "gptneox": (t.GPTNeoXForCausalLM, t.GPTNeoXConfig(**TEXT), "tokens", None),
    "smollm3": (t.SmolLM3ForCausalLM, t.SmolLM3Config(**GROUPED, no_rope_layer_interval=2),
                "tokens", None),
    "mixtral": (t.MixtralForCausalLM, t.MixtralConfig(**GROUPED, num_local_experts=4),
                "tokens", None),
    "bert_masked": (t.BertForMaskedLM, t.BertConfig(**BERT), "tokens", None),
    "bert_classes": (t.BertForSequenceClassification, t.BertConfig(**BERT, **LABELS), "class",
                     None),
    "vit": (t.ViTForImageClassification, t.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        image_size=32, patch_size=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        **LABELS), "image", 32),
    "swin": (t.SwinForImageClassification, t.SwinConfig(
        image_size=32, patch_size=2, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4,
        drop_path_rate=0.0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **LABELS),
        "image", 32),
    "segformer": (t.SegformerForSemanticSegmentation, t.SegformerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 64], num_attention_heads=[1, 2, 4, 4],
        decoder_hidden_size=64, drop_path_rate=0.0, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.0, **LABELS), "pixels", 64),
    "resnet": (t.ResNetForImageClassification, t.ResNetConfig(
        embedding_size=32, hidden_sizes=[32, 64], depths=[1, 1], layer_type="basic", **LABELS),
        "image", 32),
}

# The same with a mask of attention as the second input, 0 where a sample has ended.
MASKED = {
    "gpt2_mask": FAMILIES["gpt2"],
    "llama_mask": FAMILIES["llama"],
    "bert_mask": FAMILIES["bert_classes"],
    "distilbert_mask": (t.DistilBertForSequenceClassification, t.DistilBertConfig(
        vocab_size=VOCAB, max_position_embeddings=32, n_layers=2, n_heads=4, dim=64,
        hidden_dim=128, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, **LABELS),
        "class", None),
    # its positions count the tokens that are no padding
    "roberta_mask": (t.RobertaForSequenceClassification, t.RobertaConfig(
        **{**BERT, "pad_token_id": 1}, **LABELS), "class", None),
}
FAMILIES.update(MASKED)


def make(name):
    kind, config, *_ = FAMILIES[name]
    return kind(config).train()


def mask(batch):
    """[batch, LENGTH]: the samples have different lengths, and some are whole"""
    return (torch.arange(LENGTH) < LENGTH - torch.arange(batch)[:, None] * 3 % 11).long()


def inputs(name, batch, draw=None):
    """The argument of the call by its name; random numbers if there is a generator"""
    _, _, kind, side = FAMILIES[name]
    if kind in ("tokens", "class"):
        shape = (batch, LENGTH)
        ids = {"input_ids": torch.randint(3, VOCAB, shape, generator=draw)}
        return {**ids, "attention_mask": mask(batch)} if name in MASKED else ids
    return {"pixel_values": torch.randn(batch, 3, side, side, generator=draw)}


def logits(name, network, given):
    """Of one sample or place a row"""
    more = {"use_cache": False} if FAMILIES[name][2] == "tokens" and name != "bert_masked" else {}
    return network(**given, **more).logits


def export(name, network, file=None):
    more = {"use_cache": False} if FAMILIES[name][2] == "tokens" and name != "bert_masked" else {}
    program = torch.export.export(network, (), {**inputs(name, EXPORTED), **more}, strict=False)
    if file:
        torch.export.save(program, file)
    return program
