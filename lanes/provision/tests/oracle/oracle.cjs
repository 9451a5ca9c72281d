// Encodes and decodes tokens with the official JavaScript library. Reads one JSON request on standard input, writes one
// JSON answer on standard output. See ../oracle.rs.
"use strict";

const { createHash } = require("node:crypto");
const jwt = require("@nats-io/jwt");

function encode({ kind, name, subject, issuer, signerSeed, iat, exp, body }) {
  // The library takes the time of issue from the clock.
  Date.now = () => iat * 1000;
  const options = { signer: signerSeed };
  if (exp !== null) options.exp = exp;
  switch (kind) {
    case "operator":
      return jwt.encodeOperator(name, subject, body, options);
    case "account":
      return jwt.encodeAccount(name, subject, body, options);
    case "user":
      return jwt.encodeUser(name, subject, issuer, body, options);
    case "generic":
      // Signed by the subject itself.
      return jwt.encodeGeneric(name, signerSeed, "generic", body, exp === null ? {} : { exp });
    default:
      throw new Error(`unknown kind ${kind}`);
  }
}

function base32(bytes) {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  const bits = Array.from(bytes, (byte) => byte.toString(2).padStart(8, "0")).join("");
  return bits.match(/.{1,5}/g).map((five) => alphabet[parseInt(five.padEnd(5, "0"), 2)]).join("");
}

// What the id of a token must be, from its own text: member order and numbers survive parse and stringify.
function expectedId(token) {
  const claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
  delete claims.jti;
  return base32(createHash("sha512-256").update(JSON.stringify(claims)).digest());
}

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const request = JSON.parse(Buffer.concat(chunks));
  const tokens = [];
  for (const token of request.tokens) {
    // `decode` checks the signature and throws.
    tokens.push({ theirs: await encode(token), ours: jwt.decode(token.ours), id: expectedId(token.ours) });
  }
  const creds = await jwt.parseCreds(Buffer.from(request.creds));
  process.stdout.write(JSON.stringify({ tokens, creds: { key: creds.key, jwt: creds.jwt, account: creds.aid } }));
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
