-- What the last token said about a person's roles: {"names": [...], "only": 0|1}. NULL: nothing, and user_roles stands.
ALTER TABLE users ADD COLUMN token_roles TEXT CHECK (token_roles IS NULL OR json_valid(token_roles));

-- The roles a person really holds. Names the tenant does not have count as not said; where none is left, user_roles
-- stands, unless the token allows these only.
CREATE VIEW held_roles (tenant_id, user_id, role_id) AS
SELECT users.tenant_id, users.id, roles.id FROM users JOIN roles ON roles.tenant_id = users.tenant_id
WHERE users.token_roles IS NOT NULL AND roles.name IN (SELECT value FROM json_each(users.token_roles, '$.names'))
UNION ALL
SELECT user_roles.tenant_id, user_roles.user_id, user_roles.role_id FROM user_roles
JOIN users ON users.tenant_id = user_roles.tenant_id AND users.id = user_roles.user_id
WHERE users.token_roles IS NULL OR (NOT json_extract(users.token_roles, '$.only') AND NOT EXISTS (
  SELECT 1 FROM roles WHERE roles.tenant_id = users.tenant_id
    AND roles.name IN (SELECT value FROM json_each(users.token_roles, '$.names'))));
