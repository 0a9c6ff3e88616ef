import { defineConfig } from 'vitest/config';

// One server for all files; sandboxes are real, so a test may take a while on a busy machine.
export default defineConfig({
  test: { testTimeout: 120_000, hookTimeout: 120_000, fileParallelism: false },
});
