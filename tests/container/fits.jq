# SPDX-License-Identifier: Apache-2.0
# Whether each kvsealfs container's memory limit holds what its options may use: buffer_memory,
# pinned_memory, 250 bytes for each of max_names, and 64 MiB. False, or no such container: exit 1.

def bytes:
  capture("^(?<number>[0-9]+)(?<unit>[KMGkmg]?)i?$")
  | (.number | tonumber) * {"": 1, "K": 1024, "M": 1048576, "G": 1073741824}[.unit | ascii_upcase];

def option($options; $name; $without):
  [$options | split(",")[] | select(startswith($name + "="))] | last
  | if . then ltrimstr($name + "=") | bytes else $without end;

# Without a capability nothing is pinned.
def need($options; $pinned):
  option($options; "buffer_memory"; null) + option($options; "pinned_memory"; $pinned)
  + 250 * option($options; "max_names"; null) + 67108864;

def containers:
  .[] | (.spec.template.spec // empty | (.initContainers // [] | .[]), .containers[]),
        (.services // empty | .[]);

[containers
 | (.args // .command // []) as $words
 | select(any($words[]; contains("buffer_memory=")))
 | ($words | map(select(contains("buffer_memory=")))[0]) as $options
 | (.resources.limits.memory // .mem_limit | bytes) as $limit
 | need($options; if any($words[]; . == "--fd-socket") then 0 else null end) as $need
 | ($limit >= $need and $limit < $need * 1.1
    and (.resources.requests.memory // .mem_limit | bytes) == $limit)]
| length > 0 and all
