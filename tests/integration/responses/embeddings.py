# SPDX-License-Identifier: Apache-2.0
"""/v1/embeddings as OpenAI's Python SDK and langchain see it; the SDK asks for base64 unless told otherwise.

    BASE_URL=http://127.0.0.1:8080 python3 embeddings.py"""
import os

import openai
from langchain_openai import OpenAIEmbeddings

ROOT = os.environ["BASE_URL"] + "/v1"
client = openai.OpenAI(base_url=ROOT, api_key="none", max_retries=2)
MODEL = client.models.list().data[0].id

packed = client.embeddings.create(model=MODEL, input=["One.", "Two."])
plain = client.embeddings.create(model=MODEL, input=["One.", "Two."], encoding_format="float")
assert packed.object == "list" and [e.index for e in packed.data] == [0, 1] and packed.usage.total_tokens > 0, packed
for a, b in zip(packed.data, plain.data):
    assert len(a.embedding) == len(b.embedding) and max(abs(x - y) for x, y in zip(a.embedding, b.embedding)) < 1e-7
assert len(client.embeddings.create(model=MODEL, input="One.", dimensions=8).data[0].embedding) == 8

chain = OpenAIEmbeddings(model=MODEL, base_url=ROOT, api_key="none", check_embedding_ctx_length=False)
assert chain.embed_query("One.") == packed.data[0].embedding
assert chain.embed_documents(["One.", "Two."]) == [e.embedding for e in packed.data]

try:
    client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}])
    raise SystemExit("an embedding model wrote text")
except openai.BadRequestError as e:
    assert e.code == "embeddings_only", e
