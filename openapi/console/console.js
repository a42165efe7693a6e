"use strict";

// Every answer is shown with the curl command that asks the same, to be copied into a mail or a
// ticket: the token stays out of it.
const tokenStaysOut = () => ({
  wrapComponents: {
    curl: (Curl, { React }) => (properties) => {
      const { request } = properties;
      const shown = request.hasIn(["headers", "Authorization"])
        ? request.setIn(["headers", "Authorization"], "Bearer vgp_…")
        : request;
      return React.createElement(Curl, { ...properties, request: shown });
    },
  },
});

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
  plugins: [tokenStaysOut],
});
