"""The published contract and the files of the offline console, which `service` serves.

openapi.json            exported from the application by `make contract`; a test compares them
vectors.json            test vectors of docs/protocol.md, written by `python -m tests.vectors`
console/index.html      the page at /docs, and its start script (console.js)
console/swagger-ui/     from the npm package swagger-ui-dist 5.34.1, unchanged (Apache-2.0)
"""
