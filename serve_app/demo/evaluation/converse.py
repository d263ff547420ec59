"""Ten free conversations of five turns with a running server, as they come: nothing is edited.

python -m serve_app.demo.evaluation.converse --url http://127.0.0.1:8000 --out talks.json
"""

import argparse
import json
from pathlib import Path

CONVERSATIONS = (
    ("Hello!", "How are you today?", "Who are you?", "What can you do?", "Thank you, bye!"),
    (
        "Hi, my name is Marlene.",
        "I live in Bremen.",
        "My favourite colour is turquoise.",
        "What is my name, and where do I live?",
        "Which colour do I like best?",
    ),
    (
        "What is Manta?",
        "What does the router do?",
        "Why is the KV cache paged?",
        "How do I load another model?",
        "Do I need a GPU?",
    ),
    (
        "What is 17 + 26?",
        "And 90 minus 34?",
        "How much is 6 times 14?",
        "Sort 42, 7, 88, 19.",
        "Tell me a joke.",
    ),
    (
        "Tell me a story about a hedgehog named Bruno.",
        "Another one about Tilda the owl, please.",
        "Write a poem.",
        "What sound does an owl make?",
        "That was nice!",
    ),
    (
        "What is the capital of Portugal?",
        "And of Kenya?",
        "In which country is Oslo?",
        "Answer in one word: what is the capital of Japan?",
        "Is Sydney the capital of Australia?",
    ),
    (
        "Guten Tag!",
        "Wie heißt du?",
        "How do you say thank you in French?",
        "What does gracias mean?",
        "再见",
    ),
    (
        "Write in upper case: the blue door is open",
        "Make a bullet list of these: tea, milk, bread",
        "Turn this into JSON: name Otis, age 41",
        "Spell candle.",
        "Say pomegranate three times.",
    ),
    (
        "What day comes after Thursday?",
        "It is 14:20. What time is it in two hours?",
        "How many days does April have?",
        "What time is it now?",
        "What is the weather?",
    ),
    (
        "Explain quantum physics.",
        "Do you know Kasimir Blum?",
        "I am a bit sad today.",
        "Tell me about the penguin in three sentences.",
        "Goodbye!",
    ),
)


def converse(url: str, model: str, key: str, questions: tuple[str, ...]) -> list[dict[str, str]]:
    """The messages of one conversation."""
    # Only who asks a server needs the SDK.
    from openai import OpenAI

    messages: list[dict[str, str]] = []
    with OpenAI(base_url=f"{url.rstrip('/')}/v1", api_key=key) as client:
        for question in questions:
            messages.append({"role": "user", "content": question})
            answer = client.chat.completions.create(
                model=model,
                messages=messages,  # type: ignore[arg-type]
                temperature=0,
                max_tokens=300,
            )
            said = answer.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": said})
    return messages


def main() -> None:
    parser = argparse.ArgumentParser(description="Talk to a running demo model.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--name", default="manta-demo", help="of the model")
    parser.add_argument("--key", default="none")
    parser.add_argument("--out", type=Path, help="file for the transcripts; else the terminal")
    args = parser.parse_args()
    talks = [converse(args.url, args.name, args.key, each) for each in CONVERSATIONS]
    text = json.dumps(talks, indent=1, ensure_ascii=False)
    if args.out:
        args.out.write_text(f"{text}\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
