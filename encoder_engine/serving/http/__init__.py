"""HTTP in front of a service: the routes of OpenAI, TEI and Cohere."""
