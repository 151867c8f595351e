"""RAG over documents full of personal data: a guarded answer, redacted sources, an audit log. Runs offline."""

import tempfile
from collections import Counter
from pathlib import Path

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import MetadataMode
from llama_index.llms.nco_guard import NCOGuardLLM, NCOGuardPostprocessor

from nco_guard import Policy
from nco_guard.audit import JsonLinesSink, read_events
from nco_guard.demo import model_path

documents = [
    Document(
        text="Maria Lopez ordered a lamp. Write to maria.lopez@example.com or call 503-555-0123.",
        metadata={"file": "crm.txt", "author": "tom.miller@example.org"},
    ),
    Document(
        text="Payment note K-5120: Daniel Cohen paid with 4111 1111 1111 1111.",
        metadata={"file": "payments.txt"},
    ),
    Document(
        text="Elena Rossi, social security number 078-05-1120, lives in Oslo.", metadata={"file": "hr.txt"}
    ),
]
policy = Policy.from_presets("pii")
log = Path(tempfile.mkdtemp()) / "audit.jsonl"

with JsonLinesSink(log) as audit:
    llm = NCOGuardLLM(model_path(), guard=policy, audit=audit, max_new_tokens=64)
    # The embedding is a stand-in: what is retrieved does not matter here, what is shown of it does.
    index = VectorStoreIndex.from_documents(documents, embed_model=MockEmbedding(embed_dim=8))
    engine = index.as_query_engine(
        llm=llm,
        similarity_top_k=3,
        node_postprocessors=[
            NCOGuardPostprocessor(policy, replacement=lambda rule: f"<{rule}>", audit=audit)
        ],
    )
    answer = engine.query("What contact details do we have for Maria Lopez?")
    print("Answer: ", answer.response)
    for node in answer.source_nodes:
        print("Source: ", node.get_content(MetadataMode.LLM).replace("\n", " "))

    streaming = index.as_query_engine(llm=llm, streaming=True)
    print("Stream: ", end="")
    for piece in streaming.query("Which card was used for order K-5120?").response_gen:
        print(piece, end="", flush=True)  # no piece, and no two pieces joined, hold a match
    print()

events = read_events(log).events
print("Log:    ", dict(Counter(event.kind for event in events)))
masked = Counter(rule for event in events if event.kind == "intervention" for rule in event.rule_ids)
found = Counter(span.rule_id for event in events if event.kind == "verification" for span in event.findings)
print("Masked while writing:    ", dict(masked))
print("Found in retrieved text: ", dict(found))
