"""The published contract, and the files of the offline console; data that `service` serves.

openapi.json            exported from the application by `make contract`; a test compares them
console/index.html      the page at /docs, and what starts it (console.js)
console/swagger-ui/     of the npm package swagger-ui-dist 5.34.1, unchanged (Apache-2.0)
"""
