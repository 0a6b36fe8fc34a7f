// Where tokens are in use, the page asks for one once; the dashboard answers with a cookie that scripts cannot read.

import { useSignal } from "@preact/signals";
import { signIn } from "../session";

export function SignIn() {
  const token = useSignal("");
  const error = useSignal("");
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await signIn(token.value.trim());
    } catch (problem) {
      error.value = (problem as Error).message;
    }
  };
  return (
    <main class="page" id="main">
      <header class="title"><h1>Sign in</h1></header>
      <p>This dashboard asks for its read token.</p>
      <form class="sign-in" onSubmit={(event) => void submit(event)}>
        <label>
          Read token <input type="password" autoComplete="current-password" required value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} />
        </label>
        <button type="submit">Sign in</button>
        <p role="alert" class="missing">{error.value}</p>
      </form>
    </main>
  );
}
