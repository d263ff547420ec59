"""Asking the model on a terminal: `python -m serve_app.demo.ask "What is Manta?"`."""

import argparse
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from serve_app.demo.model_files import MODEL, load


def answer(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    chat: list[dict[str, str]],
    temperature: float = 0.0,
    max_tokens: int = 400,
) -> str:
    prompt = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    # What the model's files suggest for those who don't say is not meant here.
    greedy = {"do_sample": False, "temperature": None, "top_p": None}
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    with torch.inference_mode():
        ids = model.generate(
            **prompt,
            max_new_tokens=max_tokens,
            **(sampling if temperature else greedy),
        )
    new = ids[0, prompt["input_ids"].shape[1] :]
    return str(tokenizer.decode(new, skip_special_tokens=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask the demo model.")
    parser.add_argument("question", nargs="+", help="turns of one conversation")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--model", type=Path, default=MODEL)
    args = parser.parse_args()
    disable_progress_bar()
    model, tokenizer = load(args.model)
    chat: list[dict[str, str]] = []
    for question in args.question:
        chat.append({"role": "user", "content": question})
        reply = answer(model, tokenizer, chat, args.temperature)
        chat.append({"role": "assistant", "content": reply})
        print(f"> {question}\n{reply}\n")


if __name__ == "__main__":
    main()
