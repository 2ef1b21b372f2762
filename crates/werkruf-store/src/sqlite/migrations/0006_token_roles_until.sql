-- What a token says about roles ends with the token. Of what was noted before nobody knows when, so it is forgotten; a token
-- that still lives says it again.
DROP VIEW held_roles;
UPDATE users SET token_roles = NULL;
ALTER TABLE users ADD COLUMN token_roles_until TEXT CHECK ((token_roles_until IS NULL) = (token_roles IS NULL));

-- The roles a person really holds at a time T: those with since <= T AND T < until. Names the tenant does not have count as
-- not said; where none is left, user_roles stands, unless the token allows these only.
CREATE VIEW held_roles (tenant_id, user_id, role_id, since, until) AS
SELECT users.tenant_id, users.id, roles.id, '', users.token_roles_until
FROM users JOIN roles ON roles.tenant_id = users.tenant_id
WHERE users.token_roles IS NOT NULL AND roles.name IN (SELECT value FROM json_each(users.token_roles, '$.names'))
UNION ALL
SELECT user_roles.tenant_id, user_roles.user_id, user_roles.role_id,
  CASE WHEN json_extract(users.token_roles, '$.only') OR EXISTS (
    SELECT 1 FROM roles WHERE roles.tenant_id = users.tenant_id
      AND roles.name IN (SELECT value FROM json_each(users.token_roles, '$.names')))
  THEN users.token_roles_until ELSE '' END, '~'
FROM user_roles JOIN users ON users.tenant_id = user_roles.tenant_id AND users.id = user_roles.user_id;
