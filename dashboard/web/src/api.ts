// What the dashboard answers (docs/api.md), and how it is asked.

import { parseClean } from "./words";

export type * from "./answers";

export const API = "/api/v1";

/** An answer other than a good one; `status` is 0 where there was no answer at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export async function ask<T>(path: string, method = "GET", body?: unknown): Promise<T> {
  const request: RequestInit = { method, credentials: "same-origin", headers: { Accept: "application/json" } };
  if (method !== "GET") request.headers = { Accept: "application/json", "Content-Type": "application/json" };
  if (body !== undefined) request.body = JSON.stringify(body);
  let response: Response;
  try {
    response = await fetch(API + path, request);
  } catch {
    throw new ApiError(0, "the dashboard does not answer");
  }
  const text = await response.text();
  if (!response.ok) throw new ApiError(response.status, reason(text) || `the dashboard answered ${response.status}`);
  return (text ? parseClean(text) : undefined) as T;
}

function reason(text: string): string {
  try {
    return String((JSON.parse(text) as { error?: unknown }).error ?? "");
  } catch {
    return "";
  }
}
