/** Sign-in and sign-out, and the person whom the page acts for. */
import { batch, computed, signal } from '@preact/signals';
import { actingFor, api, type ApiError, signedOut } from './api/client';
import type { Session, User } from './api/types';
import { asApiError, loadEnded, loadStarted } from './resource';
import { store, stored } from './settings';

export const session = signal<Session | null>(null);
export const people = signal<User[]>([]);
export const sessionError = signal<ApiError | null>(null);

export const isAdmin = computed(() => session.value !== null && admin(session.value));

/** Whether the session has to name a person, as an operator's and a backend's key do. */
export const picksPerson = computed(() => session.value !== null && mustPick(session.value));

export const fullName = (user: User) => `${user.first_name} ${user.last_name}`.trim();

/** The name of a user's id, if the page may know it. */
export function personName(id: string | null | undefined): string {
  const found = people.value.find((user) => String(user.id) === id);
  return found ? fullName(found) : (id ?? '');
}

export function actFor(id: string) {
  actingFor.value = id;
  store('person', id);
}

const admin = (current: Session) => current.operator || current.scopes.includes('admin');
const mustPick = (current: Session) => !current.user_id && (current.operator || current.scopes.includes('act_as'));

async function loadPeople(current: Session): Promise<User[]> {
  const found: User[] = [];
  if (!admin(current)) return found;
  let after: number | undefined;
  // A console shows at most this many people in its picker; others are found on the page People.
  while (found.length < 2000) {
    const page = await api.get('/api/people/users', { query: { limit: 1000, after } });
    found.push(...page.users);
    if (page.next_after === null || page.next_after === undefined) break;
    after = page.next_after;
  }
  return found;
}

/** Whom an operator's page acts for at first: the last choice of this browser, else the first user. */
function firstPerson(current: Session, found: User[]): string | null {
  if (!mustPick(current)) return null;
  const active = found.filter((user) => user.active).map((user) => String(user.id));
  return [current.acting_user_id, stored('person')].find((id) => id && active.includes(id)) ?? active[0] ?? null;
}

/** Asks who is signed in. */
export async function loadSession() {
  loadStarted();
  try {
    const current = await api.get('/api/console/session');
    const found = await loadPeople(current);
    batch(() => {
      people.value = found;
      actingFor.value = firstPerson(current, found);
      signedOut.value = false;
      sessionError.value = null;
      session.value = current;
    });
  } catch (caught) {
    const error = asApiError(caught);
    session.value = null;
    if (error.status !== 401) sessionError.value = error;
    else signedOut.value = true;
  } finally {
    loadEnded();
  }
}

export async function signIn(key: string) {
  await api.post('/api/console/sessions', { body: { key } });
  await loadSession();
}

export async function signOut() {
  // Without the person: a person who was deactivated must not keep the session open.
  actingFor.value = null;
  await api.delete('/api/console/session').catch(() => undefined);
  session.value = null;
  people.value = [];
  signedOut.value = true;
}
