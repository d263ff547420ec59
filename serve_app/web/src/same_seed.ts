import fc from 'fast-check';

/** Each run of the tests tries the same cases. */
fc.configureGlobal({ seed: 20 });
