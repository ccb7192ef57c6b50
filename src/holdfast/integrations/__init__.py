"""Our store inside frameworks: each module is entered by who has that framework.

`adk`, `agent_framework`, `langchain`, `langgraph`, `llama_index`, `openai_agents` and `pydantic_ai` need
theirs installed, and say how.
`migration` brings histories over that a framework wrote into its own store; it needs none of them.
"""
