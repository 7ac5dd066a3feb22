"""Makes a model folder without weights: a byte-level BPE tokenizer and the config of a two-layer Llama.

usage: make_model.py OUT TEXT_FOLDER. The engine runs it with `--load-format dummy` (random weights). The tokenizer is
trained on the text files of a package that is there anyway, so that nothing has to be fetched from a model hub.
"""

import itertools
import json
import pathlib
import sys
from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 32_000
TEXT_CHARACTERS_MAX = 20_000_000
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}


def texts(folder: pathlib.Path) -> Iterator[str]:
    """Text of the folder's Python and documentation files, in a fixed order, up to the limit."""
    left = TEXT_CHARACTERS_MAX
    for path in sorted(itertools.chain(folder.rglob("*.py"), folder.rglob("*.md"), folder.rglob("*.txt"))):
        text = path.read_text(encoding="utf-8", errors="ignore")[: min(left, 400_000)]
        left -= len(text)
        yield text
        if left <= 0:
            return


def main(out: pathlib.Path, text_folder: pathlib.Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts(text_folder), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[0],
        additional_special_tokens=[SPECIAL[1]],
        model_max_length=131_072,
    )
    fast.chat_template = TEMPLATE
    out.mkdir(parents=True, exist_ok=True)
    fast.save_pretrained(out)
    (out / "config.json").write_text(json.dumps(CONFIG, indent=1))
    ids = {name: CONFIG[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    (out / "generation_config.json").write_text(json.dumps(ids))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
