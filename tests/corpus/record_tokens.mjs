// Writes signed tokens of a made-up project, and whether the server must accept each. The private keys are not kept.
//
// usage: node record_tokens.mjs FILE
import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import { writeFileSync } from 'node:fs';

const NOW = 1_800_000_000;
const ISSUER = 'https://corpus.example/auth/v1';
const SECRET = 'the secret of the corpus, known to everybody';
const encode = value => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');

const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const otherEc = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const jwk = (pair, kid, alg) => ({ ...pair.publicKey.export({ format: 'jwk' }), kid, alg, use: 'sig' });
const jwks = { keys: [jwk(ec, 'ec-1', 'ES256'), jwk(rsa, 'rsa-1', 'RS256')] };

const signers = {
  HS256: secret => text => createHmac('sha256', secret ?? SECRET).update(text).digest('base64url'),
  ES256: pair => text => sign('sha256', Buffer.from(text), { key: (pair ?? ec).privateKey, dsaEncoding: 'ieee-p1363' }).toString('base64url'),
  RS256: () => text => sign('sha256', Buffer.from(text), rsa.privateKey).toString('base64url'),
  none: () => () => '',
};
const claims = more => ({
  iss: ISSUER, sub: '7f1d3a52-90c4-4b7e-8a16-2f6c0e9b4d31', aud: 'authenticated', role: 'authenticated', iat: NOW - 60, exp: NOW + 3600,
  app_metadata: { tenant: 'demo', roles: ['employee'] }, ...more,
});
const token = (alg, body, header = {}, key = undefined) => {
  const kid = { ES256: 'ec-1', RS256: 'rsa-1' }[alg];
  const text = `${encode({ alg, typ: 'JWT', ...(kid ? { kid } : {}), ...header })}.${encode(body)}`;
  return `${text}.${signers[alg](key)(text)}`;
};
const without = name => Object.fromEntries(Object.entries(claims()).filter(([key]) => key !== name));
const [head, , end] = token('HS256', claims()).split('.');

const vectors = [
  ['HS256', token('HS256', claims()), true],
  ['ES256', token('ES256', claims()), true],
  ['RS256', token('RS256', claims()), true],
  ['audience in a list', token('ES256', claims({ aud: ['other', 'authenticated'] })), true],
  ['expired', token('HS256', claims({ exp: NOW - 3600 })), false],
  ['not valid yet', token('HS256', claims({ nbf: NOW + 3600 })), false],
  ['without an end', token('HS256', without('exp')), false],
  ['without a subject', token('HS256', without('sub')), false],
  ['another issuer', token('ES256', claims({ iss: 'https://other.example/auth/v1' })), false],
  ['another audience', token('ES256', claims({ aud: 'other' })), false],
  ['service role', token('HS256', claims({ role: 'service_role' })), false],
  ['anonymous role', token('HS256', claims({ role: 'anon' })), false],
  ['signed with another secret', token('HS256', claims(), {}, 'another secret that nobody configured'), false],
  ['signed with another key', token('ES256', claims(), {}, otherEc), false],
  ['unknown key id', token('ES256', claims(), { kid: 'ec-2' }), false],
  ['no algorithm', token('none', claims()), false],
  ['a public key as the secret', token('HS256', claims(), { kid: 'rsa-1' }, rsa.publicKey.export({ type: 'spki', format: 'pem' })), false],
  ['changed claims', `${head}.${encode(claims({ sub: '00000000-0000-4000-8000-000000000001' }))}.${end}`, false],
  ['without a signature', `${head}.${encode(claims())}.`, false],
].map(([name, value, accept]) => ({ name, token: value, accept }));

writeFileSync(process.argv[2], JSON.stringify({ now: NOW, issuer: ISSUER, hs256_secret: SECRET, jwks, vectors }, null, 1) + '\n');
console.log(`${vectors.length} tokens written to ${process.argv[2]}`);
