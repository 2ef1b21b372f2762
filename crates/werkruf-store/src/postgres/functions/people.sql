-- People.

-- A user with their roles and permissions at a time, in one statement and therefore of one snapshot.
CREATE OR REPLACE FUNCTION principal_of(the_tenant uuid, the_user bigint, the_time timestamptz)
RETURNS TABLE (given_name text, family_name text, home_branch bigint, language text, zone text, tenant_slug text, role_list json, permission_list json)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY SELECT users.first_name, users.last_name, users.branch_id, users.locale,
      coalesce(users.time_zone, branches.time_zone, 'UTC'), tenants.slug,
      coalesce((SELECT json_agg(json_build_object('id', roles.id, 'name', roles.name) ORDER BY roles.id)
        FROM held_roles JOIN roles ON roles.tenant_id = held_roles.tenant_id AND roles.id = held_roles.role_id
        WHERE held_roles.tenant_id = the_tenant AND held_roles.user_id = the_user AND since <= the_time AND the_time < until), '[]'),
      coalesce((SELECT json_agg(json_build_object('role', roles.name, 'entity', entity, 'entity_type', entity_type, 'access', access, 'scope', scope)
          ORDER BY permissions.role_id, permissions.position)
        FROM held_roles JOIN roles ON roles.tenant_id = held_roles.tenant_id AND roles.id = held_roles.role_id
          JOIN permissions ON permissions.tenant_id = held_roles.tenant_id AND permissions.role_id = held_roles.role_id
        WHERE held_roles.tenant_id = the_tenant AND held_roles.user_id = the_user AND since <= the_time AND the_time < until), '[]')
    FROM users JOIN tenants ON tenants.id = users.tenant_id
      LEFT JOIN branches ON branches.tenant_id = users.tenant_id AND branches.id = users.branch_id
    WHERE users.tenant_id = the_tenant AND users.id = the_user AND users.active;
END
$$;
