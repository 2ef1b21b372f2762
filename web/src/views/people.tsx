/** People: users and their roles, what each may call, and a dry run of the decision. */
import { useSignal } from '@preact/signals';
import { api } from '../api/client';
import type { May, Role, User } from '../api/types';
import { t, word } from '../i18n';
import { ActionButton, Empty, Facts, Field, Json, Loaded, Page, Section, Status } from '../parts/basics';
import { useResource } from '../resource';
import { query, setQuery } from '../router';
import { fullName, people } from '../session';

async function load(signal: AbortSignal) {
  const [users, roles, branches, tools] = await Promise.all([
    api.get('/api/people/users', { query: { limit: 1000 }, signal }),
    api.get('/api/people/roles', { query: { limit: 1000 }, signal }),
    api.get('/api/people/branches', { query: { limit: 1000 }, signal }),
    api.get('/api/tools', { signal }),
  ]);
  return { users: users.users, roles: roles.roles, branches: branches.branches, tools: tools.tools };
}

type Data = Awaited<ReturnType<typeof load>>;

function Users({ data, selected }: { data: Data; selected: string | null }) {
  const roleName = (id: number) => data.roles.find((role) => role.id === id)?.name ?? String(id);
  const branchName = (id: number | null | undefined) => data.branches.find((branch) => branch.id === id)?.name ?? '–';
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label={t('users')}>
      <table>
        <thead>
          <tr>
            {[t('name'), t('roles'), t('branch'), t('language'), t('contact'), t('status')].map((name) => (
              <th scope="col">{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {data.users.map((user) => (
            <tr key={user.id} class={String(user.id) === selected ? 'selected' : ''} data-testid="user-row" data-id={user.id}>
              <td>
                <button type="button" class="link" onClick={() => setQuery({ user: String(user.id) })}>
                  {fullName(user)}
                </button>
              </td>
              <td>{user.role_ids.map(roleName).join(', ') || '–'}</td>
              <td>{branchName(user.branch_id)}</td>
              <td>{user.locale}</td>
              <td>{user.email ?? user.phone ?? '–'}</td>
              <td>
                <Status status={user.active ? 'active' : 'inactive'} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function RoleBoxes({ user, roles, reload }: { user: User; roles: Role[]; reload: () => Promise<void> }) {
  const chosen = useSignal(new Set(user.role_ids));
  const changed = chosen.value.size !== user.role_ids.length || user.role_ids.some((id) => !chosen.value.has(id));
  const toggle = (id: number) => {
    const next = new Set(chosen.value);
    if (!next.delete(id)) next.add(id);
    chosen.value = next;
  };
  const save = async () => {
    await api.put('/api/people/users/{id}/roles', { path: { id: String(user.id) }, body: { role_ids: [...chosen.value] } });
    await reload();
  };
  return (
    <fieldset class="fieldset">
      <legend>{t('roles')}</legend>
      <div class="row">
        {roles.map((role) => (
          <label class="check">
            <input type="checkbox" checked={chosen.value.has(role.id)} onChange={() => toggle(role.id)} /> {role.name}
          </label>
        ))}
        <ActionButton kind="primary" label={t('save')} action={save} disabled={!changed} />
      </div>
    </fieldset>
  );
}

/** What the server would decide for each tool. It is asked one tool after the other, so that a long list does not flood it. */
async function mayAll(user: string, tools: Data['tools'], signal: AbortSignal): Promise<{ tool: string; may: May }[]> {
  const found: { tool: string; may: May }[] = [];
  for (const { name } of tools) {
    found.push({ tool: name, may: await api.get('/api/people/users/{id}/may/{tool}', { path: { id: user, tool: name }, signal }) });
  }
  return found;
}

function MayTable({ user, tools }: { user: User; tools: Data['tools'] }) {
  const list = useResource((signal) => mayAll(String(user.id), tools, signal), [user.id, user.role_ids.join()]);
  return (
    <Loaded of={list}>
      {(rows) => (
        <div class="table-scroll" tabIndex={0} role="group" aria-label={t('may_title', { name: fullName(user) })}>
          <table data-testid="may-table">
            <thead>
              <tr>
                {[t('tool'), t('allowed'), t('role'), t('scope'), t('reason')].map((name) => (
                  <th scope="col">{name}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(({ tool, may }) => (
                <tr key={tool}>
                  <td>{tool}</td>
                  <td>
                    <span class={`status ${may.allowed ? 'good' : 'bad'}`}>{may.allowed ? t('yes') : t('no')}</span>
                  </td>
                  <td>{may.role ?? '–'}</td>
                  <td>{may.scope ? word(may.scope) : '–'}</td>
                  <td>{may.reason}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Loaded>
  );
}

function DryRun({ user, data }: { user: User; data: Data }) {
  const tool = useSignal(data.tools[0]?.name ?? '');
  const other = useSignal('');
  const result = useSignal<May | null>(null);
  const run = async () => {
    result.value = await api.get('/api/people/users/{id}/may/{tool}', { path: { id: String(user.id), tool: tool.value }, query: { user_id: other.value || undefined } });
  };
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Field label={t('tool')}>
          <select value={tool.value} onChange={(event) => (tool.value = event.currentTarget.value)}>
            {data.tools.map((one) => (
              <option value={one.name}>{one.name}</option>
            ))}
          </select>
        </Field>
        <Field label={t('rows_of')}>
          <select value={other.value} onChange={(event) => (other.value = event.currentTarget.value)}>
            <option value="">{t('own_rows')}</option>
            {data.users.map((one) => (
              <option value={String(one.id)}>{fullName(one)}</option>
            ))}
          </select>
        </Field>
        <ActionButton label={t('dry_run')} kind="primary" testid="dry-run" action={run} />
      </form>
      {result.value && (
        <div class="note" aria-live="polite" data-testid="dry-run-result">
          <p>
            <span class={`status ${result.value.allowed ? 'good' : 'bad'}`}>{result.value.allowed ? t('allowed') : t('refused')}</span> {result.value.reason}
          </p>
          <Facts
            rows={[
              [t('role'), result.value.role ?? '–'],
              [t('permission'), result.value.permission ?? '–'],
              [t('scope'), result.value.scope ? word(result.value.scope) : '–'],
            ]}
          />
        </div>
      )}
    </>
  );
}

function UserDetail({ user, data, reload }: { user: User; data: Data; reload: () => Promise<void> }) {
  const setActive = async () => {
    if (user.active) await api.delete('/api/people/users/{id}', { path: { id: String(user.id) } });
    else await api.patch('/api/people/users/{id}', { path: { id: String(user.id) }, body: { active: true } });
    await reload();
  };
  return (
    <>
      <Section title={fullName(user)} actions={<ActionButton label={user.active ? t('deactivate') : t('activate')} kind={user.active ? 'danger' : 'primary'} action={setActive} />}>
        <RoleBoxes key={`${user.id}:${user.role_ids.join()}`} user={user} roles={data.roles} reload={reload} />
      </Section>
      <Section title={t('dry_run')}>
        <p class="muted">{t('dry_run_intro')}</p>
        <DryRun key={user.id} user={user} data={data} />
      </Section>
      <Section title={t('may_title', { name: fullName(user) })}>
        <MayTable user={user} tools={data.tools} />
      </Section>
    </>
  );
}

export function PeopleView() {
  const list = useResource(load, []);
  const selected = query.value.get('user');
  const reload = async () => {
    await list.reload();
    if (list.data.value) people.value = list.data.value.users;
  };
  return (
    <Page title={t('nav_people')} intro={t('people_intro')}>
      <Loaded of={list}>
        {(data) => {
          const user = data.users.find((one) => String(one.id) === selected);
          if (!data.users.length) {
            return (
              <Empty icon="people" title={t('people_empty_title')}>
                {t('people_empty')}
              </Empty>
            );
          }
          return (
            <>
              <Users data={data} selected={selected} />
              {user ? <UserDetail user={user} data={data} reload={reload} /> : <p class="muted">{t('people_choose')}</p>}
              <Section title={t('roles')}>
                <div class="cards">
                  {data.roles.map((role) => (
                    <article class="card" key={role.id}>
                      <h3>{role.name}</h3>
                      {role.permissions.length ? (
                        <ul class="permissions">
                          {role.permissions.map((permission) => (
                            <li>
                              <code>
                                {permission.entity}:{permission.entity_type}
                              </code>{' '}
                              {word(permission.access)} · {word(permission.scope)}
                            </li>
                          ))}
                        </ul>
                      ) : (
                        <Json value={t('none')} label={role.name} />
                      )}
                    </article>
                  ))}
                </div>
              </Section>
            </>
          );
        }}
      </Loaded>
    </Page>
  );
}
