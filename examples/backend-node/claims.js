// What this backend claims: once for the protocol, once for "describe".
'use strict';

const ms = 1000000n;

const properties = {
  name: 'node',
  fencing: 'durable',
  scope: 'host',
  ttlMinNs: String(10n * ms),
  ttlStepNs: String(ms),
  ttlMaxNs: String(24n * 3600n * 1000n * ms),
  fifo: false,
  durability: 'ends with its process',
  server: 'Node.js ' + process.version,
  survivesPlugin: false,
  capabilities: ['observer'],
};

function describe() {
  return {
    name: properties.name,
    doc: 'locks in the memory of a plugin that is written in JavaScript',
    version: '1',
    protocols: [1],
    properties: {
      fencing: properties.fencing,
      scope: properties.scope,
      ttl_min: '10ms',
      ttl_step: '1ms',
      ttl_max: '24h',
      fifo: properties.fifo,
      durability: properties.durability,
      survives_plugin: properties.survivesPlugin,
      capabilities: properties.capabilities,
    },
    keys: [],
    commands: [],
  };
}

module.exports = { describe, properties };
