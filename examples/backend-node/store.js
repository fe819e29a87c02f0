// Locks in memory. JavaScript runs one operation at a time, so each method is
// one atomic step. Times are those of the monotonic clock, in nanoseconds.
'use strict';

const { EventEmitter } = require('node:events');

const ms = 1000000n;
const barFor = 120n * 1000n * ms;

// Refusal is an outcome that the host knows by its codes.
class Refusal extends Error {
  constructor(codes, text, holder) {
    super(text);
    this.message_ = { codes, text, holder };
  }
}

const now = () => process.hrtime.bigint();

class Store {
  #grants = new Map(); // by name
  #barred = new Map(); // by name and owner: until when
  #last = 0n;
  #changes = new EventEmitter().setMaxListeners(0);

  tryAcquire(m) {
    if (this.#isBarred(m)) throw new Refusal(['WITHDRAWN'], 'owner was withdrawn');
    const held = this.#grant(m.name);
    if (held) throw new Refusal(['HELD'], 'lock is held', this.#holder(held));
    const grant = { name: m.name, owner: m.owner, label: m.label, value: valueOf(m), token: this.#mint() };
    this.#grants.set(m.name, grant);
    this.#expireIn(grant, BigInt(m.ttlNs));
    this.#changes.emit(m.name);
    return String(grant.token);
  }

  renew(m) {
    this.#expireIn(this.#mine(m), BigInt(m.ttlNs));
  }

  release(m) {
    const grant = this.#mine(m);
    const keep = BigInt(m.keepNs);
    if (keep > 0n) {
      if (now() + keep < grant.ends) this.#expireIn(grant, keep);
      return;
    }
    this.#drop(grant);
  }

  proclaim(m) {
    this.#mine(m).value = valueOf(m);
    this.#changes.emit(m.name);
  }

  inspect(name) {
    const grant = this.#grant(name);
    return grant && this.#holder(grant);
  }

  // observe calls emit with the present holder and after each change, and
  // returns what ends it.
  observe(name, emit) {
    const look = () => emit(this.inspect(name));
    this.#changes.on(name, look);
    look();
    return () => this.#changes.off(name, look);
  }

  // withdraw undoes whatever that owner did or may still do.
  withdraw(m) {
    const time = now();
    for (const [key, until] of this.#barred) { // the oldest come first
      if (until > time) break;
      this.#barred.delete(key);
    }
    this.#barred.set(claim(m), time + barFor);
    const grant = this.#grant(m.name);
    if (grant && grant.owner === m.owner) this.#drop(grant);
  }

  #isBarred(m) {
    return (this.#barred.get(claim(m)) || 0n) > now();
  }

  // grant returns the live grant of name. A timer may be late, so it looks.
  #grant(name) {
    const grant = this.#grants.get(name);
    if (grant && grant.ends <= now()) {
      this.#drop(grant);
      return undefined;
    }
    return grant;
  }

  #mine(m) {
    const grant = this.#grant(m.name);
    if (!grant || grant.owner !== m.owner || String(grant.token) !== m.token) {
      throw new Refusal(['NOT_HELD'], 'lock is not held by this owner', grant && this.#holder(grant));
    }
    return grant;
  }

  // expireIn is what tells observers of the end of a lease that nobody asks for.
  #expireIn(grant, ttl) {
    clearTimeout(grant.timer);
    grant.ends = now() + ttl;
    const longest = 2147483647n; // more milliseconds than that no timer takes
    const wait = ttl / ms + 1n < longest ? ttl / ms + 1n : longest;
    grant.timer = setTimeout(() => {
      if (this.#grants.get(grant.name) === grant) this.#grant(grant.name);
    }, Number(wait));
  }

  #drop(grant) {
    clearTimeout(grant.timer);
    this.#grants.delete(grant.name);
    this.#changes.emit(grant.name);
  }

  // mint: the clock lets tokens rise over a restart of this process.
  #mint() {
    const clock = BigInt(Date.now()) * 1000n;
    this.#last = clock > this.#last ? clock : this.#last + 1n;
    return this.#last;
  }

  #holder(grant) {
    const left = grant.ends - now();
    return {
      name: Buffer.from(grant.name),
      owner: Buffer.from(grant.owner),
      label: Buffer.from(grant.label),
      value: grant.value,
      token: String(grant.token),
      ttlNs: String(((left + ms - 1n) / ms) * ms),
      waiters: '-1',
    };
  }
}

const claim = (m) => JSON.stringify([m.name, m.owner]);
const valueOf = (m) => (m._value ? m.value : undefined);

module.exports = { Store, Refusal };
