"""OpenAI's own Python client against the real server. usage: suite.py TRACE

The client is told where the server is by OPENAI_BASE_URL and OPENAI_API_KEY alone. Each function is a test; the name is the claim.
TRACE is the server's --trace file, which the streaming client's figures are held against.
"""

import asyncio
import json
import math
import os
import sys
import time
import traceback

import openai
from openai import AsyncOpenAI, OpenAI

MODEL = "gpt-4o"
client = OpenAI()
HELLO = [{"role": "user", "content": "Say hello in one short sentence."}]


def chat(**more):
    return client.chat.completions.create(model=MODEL, messages=HELLO, **{"max_tokens": 12, "temperature": 0, **more})


def raises(kind, status, call):
    try:
        call()
    except kind as error:
        assert error.status_code == status, error
        return error
    raise AssertionError(f"no {kind.__name__}")


def chat_is_answered():
    answer = chat()
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.model == MODEL and choice.message.role == "assistant"
    assert choice.message.content and choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0


def streamed_chat_is_the_whole_one():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    whole = chat()
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason


def two_choices_differ_and_come_back_with_the_same_seed():
    ask = lambda: chat(n=2, temperature=1, seed=5, max_tokens=16)  # noqa: E731
    first, second = ask(), ask()
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1] and texts[0] != texts[1]
    assert texts == [choice.message.content for choice in second.choices]


def logprobs_are_the_chosen_tokens():
    answer = chat(logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob >= token.logprob
        assert bytes(token.bytes).decode(errors="ignore") in token.token or token.token


def stop_strings_end_an_answer_in_front_of_them():
    whole = chat(max_tokens=24).choices[0].message.content
    stop = whole[5:8]
    answer = chat(max_tokens=24, stop=[stop, "never in there"])
    assert answer.choices[0].message.content == whole[: whole.index(stop)]
    assert answer.choices[0].finish_reason == "stop"


def logit_bias_forbids_a_token():
    first = chat(logprobs=True).choices[0].logprobs.content[0].token
    ids = tokenize(first)
    assert len(ids) == 1, (first, ids)
    other = chat(logprobs=True, logit_bias={str(ids[0]): -100}).choices[0].logprobs.content[0].token
    assert other != first


def tokenize(text):
    url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1") + "/tokenize"
    return client.post(url, body={"prompt": text}, cast_to=object)["tokens"]


def completions_are_answered_streamed_and_not():
    ask = dict(model=MODEL, prompt="The capital of France is", max_tokens=8, temperature=0)
    whole = client.completions.create(**ask)
    assert whole.object == "text_completion" and whole.choices[0].text
    text = "".join(chunk.choices[0].text for chunk in client.completions.create(stream=True, **ask))
    assert text == whole.choices[0].text
    several = client.completions.create(**{**ask, "prompt": ["The capital of France is", "One, two,"]})
    assert [choice.index for choice in several.choices] == [0, 1] and several.choices[0].text == text
    logprobs = client.completions.create(logprobs=2, **ask).choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == 8
    echoed = client.completions.create(echo=True, **ask)
    assert echoed.choices[0].text == ask["prompt"] + text


def max_completion_tokens_wins():
    assert chat(max_tokens=9, max_completion_tokens=3, extra_body={"ignore_eos": True}).usage.completion_tokens == 3


def models_are_listed_and_found():
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def embeddings_come_as_floats_of_unit_length_and_like_is_near_like():
    texts = ["The cat sleeps on the sofa.", "A kitten is napping on the couch.", "Interest rates rose by half a percent."]
    answer = client.embeddings.create(model=MODEL, input=texts)
    assert [one.index for one in answer.data] == [0, 1, 2] and answer.usage.prompt_tokens == answer.usage.total_tokens > 15
    vectors = [one.embedding for one in answer.data]
    plain = client.embeddings.create(model=MODEL, input=texts[0], encoding_format="float").data[0].embedding
    assert plain == vectors[0], "base64, which this client asks for by itself, holds the same floats"
    dot = lambda a, b: sum(x * y for x, y in zip(a, b))  # noqa: E731
    assert abs(dot(plain, plain) - 1) < 1e-5
    assert dot(vectors[0], vectors[1]) > dot(vectors[0], vectors[2])


def errors_are_the_clients_own_types():
    raises(openai.NotFoundError, 404, lambda: client.chat.completions.create(model="gpt-5", messages=HELLO))
    bad = raises(openai.BadRequestError, 400, lambda: chat(temperature=9))
    assert bad.param == "temperature", bad.param
    raises(openai.BadRequestError, 400, lambda: chat(response_format={"type": "json_object"}))
    long = raises(openai.BadRequestError, 400, lambda: client.completions.create(model=MODEL, prompt=[5] * 100_000))
    assert long.code == "context_length_exceeded", long.code
    stranger = OpenAI(api_key="wrong", max_retries=0)
    raises(openai.AuthenticationError, 401, lambda: stranger.models.list())
    raises(openai.PermissionDeniedError, 403, lambda: chat(extra_body={"priority": -1}))
    unknown = lambda: client.post("/nothing", body={}, cast_to=object)  # noqa: E731
    raises(openai.NotFoundError, 404, unknown)
    broken = lambda: client.chat.completions.create(model=MODEL, messages=HELLO, temperature=float("nan"))  # noqa: E731
    try:
        broken()
        raise AssertionError("NaN was taken")
    except (openai.BadRequestError, ValueError):
        pass


def a_timeout_is_the_clients_and_frees_the_request():
    impatient = OpenAI(max_retries=0, timeout=0.3)
    try:
        impatient.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4000, extra_body={"ignore_eos": True})
        raise AssertionError("no timeout")
    except openai.APITimeoutError:
        pass
    idle()


def a_stream_that_is_closed_frees_the_request():
    stream = chat(stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
    for at, _ in enumerate(stream):
        if at == 5:
            stream.close()
            break
    idle()


def idle():
    url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1") + "/metrics"
    for _ in range(600):
        text = client.get(url, cast_to=str, options={"headers": {"Accept": "text/plain"}})
        lines = [line for line in text.splitlines() if line.startswith("twostroke:num_requests_")]
        assert len(lines) == 2, lines
        if all(float(line.rsplit(" ", 1)[1]) == 0 for line in lines):
            return
        time.sleep(0.05)
    raise AssertionError("the request goes on")


def the_async_client_streams_side_by_side():
    async def one(seed):
        text = ""
        async with AsyncOpenAI() as own:
            stream = await own.chat.completions.create(
                model=MODEL, messages=HELLO, max_tokens=10, seed=seed, temperature=1, stream=True
            )
            async for chunk in stream:
                if chunk.choices:
                    text += chunk.choices[0].delta.content or ""
        return text

    async def all_of_them():
        return await asyncio.gather(*(one(seed) for seed in range(6)))

    crowd = asyncio.run(all_of_them())
    alone = [asyncio.run(one(seed)) for seed in range(6)]
    assert crowd == alone, "company changes nothing"


def the_streaming_clients_figures_are_the_traces():
    """The loop that people measure with: TTFT at the first content, TPOT from there to the last."""
    figures = []
    for prompt in ("Why is the sky blue?", "Tell me about the sea. " * 12):
        start = time.perf_counter()
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=32,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        first = last = tokens = None
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                last = time.perf_counter()
                first = first or last
            if chunk.usage:
                tokens = chunk.usage.completion_tokens
        figures.append((first - start, (last - first) / (tokens - 1), tokens))
    time.sleep(0.2)
    with open(TRACE) as file:
        events = [json.loads(line) for line in file if line.endswith("\n")]
    arrivals = [event for event in events if event["kind"] == "arrive"][-len(figures) :]
    for arrive, (ttft, tpot, tokens) in zip(arrivals, figures):
        times = []
        for event in events:
            if event["kind"] == "step":
                for row in event["rows"]:
                    ends = row["from"] + row["tokens"]
                    if row["id"] == arrive["id"] and ends >= arrive["prompt_tokens"]:
                        times.append(event["t1"])
        assert len(times) == tokens, (len(times), tokens)
        theirs = ((times[0] - arrive["t"]) / 1e9, (times[-1] - times[0]) / 1e9 / (tokens - 1))
        print(f"    TTFT client {ttft * 1e3:.2f} ms, trace {theirs[0] * 1e3:.2f}; TPOT {tpot * 1e3:.3f}, {theirs[1] * 1e3:.3f}")
        for mine, own in zip((ttft, tpot), theirs):
            assert math.isclose(mine, own, abs_tol=0.010 + 0.05 * own), (mine, own)


TESTS = [
    chat_is_answered,
    streamed_chat_is_the_whole_one,
    two_choices_differ_and_come_back_with_the_same_seed,
    logprobs_are_the_chosen_tokens,
    stop_strings_end_an_answer_in_front_of_them,
    logit_bias_forbids_a_token,
    completions_are_answered_streamed_and_not,
    max_completion_tokens_wins,
    models_are_listed_and_found,
    embeddings_come_as_floats_of_unit_length_and_like_is_near_like,
    errors_are_the_clients_own_types,
    a_timeout_is_the_clients_and_frees_the_request,
    a_stream_that_is_closed_frees_the_request,
    the_async_client_streams_side_by_side,
    the_streaming_clients_figures_are_the_traces,
]


def main():
    failed = []
    print(f"openai {openai.__version__}")
    for test in TESTS:
        start = time.perf_counter()
        try:
            test()
            print(f"test {test.__name__} ... ok ({time.perf_counter() - start:.1f} s)", flush=True)
        except Exception:
            traceback.print_exc()
            failed.append(test.__name__)
            print(f"test {test.__name__} ... FAILED", flush=True)
    print(f"{len(TESTS) - len(failed)} passed; {len(failed)} failed: {' '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    TRACE = sys.argv[1]
    main()
