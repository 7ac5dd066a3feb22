"""Tokens, prompts and rendering: what the simulated model sees and says."""

import pytest

from shoal_sim import chat_template, tokens
from shoal_sim.prompt import Prompt, extend_hashes

PAGE = 64


def test_text_is_a_function_of_the_prompt() -> None:
    first = tokens.expected_text(b"prompt", 20)
    assert first == tokens.expected_text(b"prompt", 20)
    assert first != tokens.expected_text(b"another prompt", 20)
    assert first != tokens.expected_text(b"prompt", 20, choice=1)
    assert first.startswith(tokens.expected_text(b"prompt", 7))


def test_the_rest_follows_from_prompt_and_beginning() -> None:
    """What a router needs to continue a broken stream elsewhere."""
    whole = tokens.expected_tokens(b"prompt", 30)
    begun = b"prompt" + "".join(whole[:11]).encode()
    assert tokens.expected_tokens(begun, 19) == whole[11:]


def test_natural_end_is_repeatable_and_short_enough() -> None:
    lengths = [len(tokens.expected_tokens(f"prompt {i}".encode())) for i in range(200)]
    assert lengths == [len(tokens.expected_tokens(f"prompt {i}".encode())) for i in range(200)]
    assert 0.7 < sum(lengths) / len(lengths) / tokens.NATURAL_TOKENS_MEAN < 1.3


def test_a_token_is_four_plain_bytes() -> None:
    for token in tokens.expected_tokens(b"x", 500):
        assert len(token.encode()) == tokens.TOKEN_BYTES
        assert token[1:].isalpha()


@pytest.mark.parametrize("text", ["", "a", "four", "fives", "grüße aus köln", "日本語" * 50])
def test_ids_and_text_are_the_same_thing(text: str) -> None:
    ids = tokens.ids_of(text.encode())
    assert len(ids) == tokens.token_count(len(text.encode()))
    assert tokens.text_of(ids) == text
    assert tokens.bytes_of(ids).rstrip(b"\0") == text.encode()


@pytest.mark.parametrize("ids", [[-1], [1 << 32], ["a"], [1.5]])
def test_ids_outside_the_vocabulary_are_told(ids: list[int]) -> None:
    with pytest.raises(tokens.VocabularyError):
        tokens.bytes_of(ids)


def test_pages_are_equal_as_far_as_prefixes_are() -> None:
    one = Prompt(b"a" * 1000 + b"x" * 1000, PAGE)
    other = Prompt(b"a" * 1000 + b"y" * 1000, PAGE)
    assert len(one.page_hashes) == 2000 // (PAGE * 4)
    shared = 1000 // (PAGE * 4)
    assert one.page_hashes[:shared] == other.page_hashes[:shared]
    assert not set(one.page_hashes[shared:]) & set(other.page_hashes[shared:])


def test_equal_pages_at_other_places_differ() -> None:
    assert len(set(Prompt(b"a" * 256 * 8, PAGE).page_hashes)) == 8


def test_namespaces_share_nothing() -> None:
    data = b"a" * 1024
    assert not set(Prompt(data, PAGE, "salt").page_hashes) & set(Prompt(data, PAGE).page_hashes)


def test_generated_text_extends_the_pages() -> None:
    prompt = Prompt(b"p" * 777, PAGE)
    text = tokens.expected_text(prompt.data, 200)
    assert prompt.hashes_with(text, "") == Prompt(prompt.data + text.encode(), PAGE).page_hashes
    assert prompt.hashes_with("", "") == prompt.page_hashes


def test_hashes_can_be_continued() -> None:
    data = bytes(range(256)) * 5
    begun = extend_hashes([], data[:512], 256, "")
    assert extend_hashes(begun, data[512:], 256, "") == extend_hashes([], data, 256, "")


def test_second_turn_starts_with_the_first_and_its_answer() -> None:
    first = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
    answer = tokens.expected_text(chat_template.render(first), 50)
    messages = [*first["messages"], {"role": "assistant", "content": answer}, {"role": "user", "content": "More"}]
    second = chat_template.render({"messages": messages})
    assert second.startswith(chat_template.render(first) + answer.encode())


def test_rendering_is_chatml_with_tools_first() -> None:
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        "tools": [{"type": "function"}],
    }
    assert chat_template.render(body) == (
        b'<|im_start|>system\n# Tools\n[{"type":"function"}]<|im_end|>\n'
        b"<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
    )


def test_tool_calls_media_and_surrogates_render() -> None:
    calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    one = {"messages": [{"role": "assistant", "content": None, "tool_calls": calls}]}
    assert b'"name":"f"' in chat_template.render(one)
    image = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]}
    assert b"http://x" in chat_template.render(image)
    assert chat_template.render({"messages": [{"role": "user", "content": "\ud800"}]})


def test_final_message_can_be_continued() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Sur"}]
    data = chat_template.render({"messages": messages, "continue_final_message": True})
    assert data.endswith(b"<|im_start|>assistant\nSur")
