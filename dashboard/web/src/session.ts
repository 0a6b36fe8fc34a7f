// Whether the dashboard wants a token from this browser, and giving it one.

import { signal } from "@preact/signals";
import { ask, type Session } from "./api";

export const session = signal<Session | null>(null);

/** Asks the dashboard; an answer that does not come counts as "go on trying". */
export async function signedIn(): Promise<boolean> {
  try {
    session.value = await ask<Session>("/session");
  } catch {
    return true;
  }
  return !session.value.required || session.value.signed_in;
}

export async function signIn(token: string): Promise<void> {
  await ask("/session", "POST", { token });
  await signedIn();
}

export async function signOut(): Promise<void> {
  await ask("/session", "DELETE");
  await signedIn();
}
