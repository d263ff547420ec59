"""Files through `/ui/api`: bytes under their digest."""

import asyncio
from hashlib import sha256

from tests.web.api.serving import Api, error_of, message_body, served

PAGE = b"<script>alert(1)</script>"
DIGEST = sha256(PAGE).hexdigest()


async def put(api: Api, data: bytes = PAGE, digest: str = DIGEST, type_: str = "text/html") -> int:
    headers = {"content-type": type_}
    answer = await api.ask("PUT", f"/files/{digest}", content=data, headers=headers)
    return answer.status_code


def test_a_file_comes_back_for_saving_and_never_runs(url: str) -> None:
    async def run() -> None:
        async with served(url) as api:
            assert await put(api) == await put(api) == 204
            found = await api.get(f"/files/{DIGEST}")
            assert (found.status_code, found.content) == (200, PAGE)
            assert found.headers["content-type"] == "text/html"
            assert found.headers["content-disposition"] == "attachment"
            assert found.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in found.headers["content-security-policy"]
            head = await api.ask("HEAD", f"/files/{DIGEST}")
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(len(PAGE))
            assert (await api.get("/me")).json()["used_bytes"] == 256 + len(PAGE)

    asyncio.run(run())


def test_a_large_file_and_an_empty_one_are_whole(url: str) -> None:
    async def run() -> None:
        async with served(url) as api:
            for data in (bytes(range(256)) * 10_000, b""):
                digest = sha256(data).hexdigest()
                assert await put(api, data, digest, "application/octet-stream") == 204
                assert (await api.get(f"/files/{digest}")).content == data

    asyncio.run(run())


def test_bytes_of_another_digest_are_refused(url: str) -> None:
    async def run() -> None:
        async with served(url) as api:
            assert await put(api, digest="0" * 64) == 422
            missing = await api.get(f"/files/{'0' * 64}")
            assert (missing.status_code, error_of(missing)["param"]) == (404, "sha256")
            assert (await api.ask("HEAD", f"/files/{'0' * 64}")).status_code == 404
            for digest in ("0" * 63, DIGEST.upper(), "..%2f" + DIGEST):
                assert (await api.get(f"/files/{digest}")).status_code in (400, 404)
            assert await put(api, type_="text html") == 400

    asyncio.run(run())


def test_a_file_goes_with_the_last_message_that_has_it(url: str) -> None:
    attached = {"name": "a", "type": "text/html", "size": 25, "sha256": DIGEST, "as": "raw"}

    async def run() -> None:
        async with served(url) as api:
            await api.add_chat()
            await put(api)
            ids = []
            for number in (1, 2):
                body = message_body(number, attachments=[attached])
                ids.append(body["id"])
                assert (await api.add(body)).json()["missing_files"] == []
            path = f"/chats/01890000-0000-7000-8000-000000000000/messages/{ids[0]}"
            await api.ask("DELETE", path)
            assert (await api.get(f"/files/{DIGEST}")).status_code == 200
            await api.ask("DELETE", "/chats/01890000-0000-7000-8000-000000000000")
            assert (await api.get(f"/files/{DIGEST}")).status_code == 404

    asyncio.run(run())
