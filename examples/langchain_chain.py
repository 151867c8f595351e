"""A LangChain LLM, guarded: every route of the chain keeps the policy, streaming included."""

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate

from langchain_nco_guard import GuardedPipeline
from nco_guard import Policy
from nco_guard.demo import model_path

llm = GuardedPipeline.from_model_id(
    str(model_path()),
    guard=Policy.from_presets("pii"),
    pipeline_kwargs={"max_new_tokens": 40, "do_sample": False},
)
prompt = PromptTemplate.from_template("<|user|>{question}<|end|><|assistant|>")
chain = prompt | llm | StrOutputParser()

print("invoke:", chain.invoke({"question": "How can I reach Daniel Cohen?"}))
print("stream:", "|".join(chain.stream({"question": "Show me the customer record of Priya Patel."})))
