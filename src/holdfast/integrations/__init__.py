"""Our store inside frameworks: each module is entered by who has that framework.

`langchain`, `openai_agents`, `llama_index` and `langgraph` need theirs installed, and say how.
`migration` brings histories over that a framework wrote into its own store; it needs none of them.
"""
