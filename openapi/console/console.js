"use strict";

// A file of its own: the page's policy allows no script within it.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#console",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  // A token is forgotten when the page is left.
  persistAuthorization: false,
  // By default the document would be sent to a validator on the internet.
  validatorUrl: null,
});
