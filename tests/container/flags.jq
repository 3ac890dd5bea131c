# SPDX-License-Identifier: Apache-2.0
# What podman is told for one container of a pod: the flags, the image, the arguments; one a line.
#
# Input: the manifests. $kind: the object's; $container: its name; $dir: the folder that stands for
# its volumes, one folder each; $image: what runs instead of images that are not ours.

def flag($name; $value): if $value == null then empty else "--\($name)=\($value)" end;

def propagation:
  {"Bidirectional": "rshared", "HostToContainer": "rslave"}[.mountPropagation // ""] // "rprivate";

# Kubernetes' Mi and Gi are podman's m and g.
def memory: if . then ascii_downcase | rtrimstr("i") else null end;

def user($pod):
  (.runAsUser // $pod.runAsUser) as $uid | (.runAsGroup // $pod.runAsGroup) as $gid
  | if $uid == null then null elif $gid == null then "\($uid)" else "\($uid):\($gid)" end;

def pod: map(select(.kind == $kind))[0].spec.template.spec;

pod as $pod | ($pod.securityContext // {}) as $shared
| ($pod.initContainers // [] | .[]), $pod.containers[]
| select(.name == $container)
| (.securityContext // {}) as $own
| (if $own.privileged then "--privileged" else empty end),
  ($own.capabilities.drop // [] | .[] | flag("cap-drop"; .)),
  ($own.capabilities.add // [] | .[] | flag("cap-add"; .)),
  (if $own.allowPrivilegeEscalation == false then "--security-opt=no-new-privileges" else empty end),
  (if $own.readOnlyRootFilesystem then "--read-only", "--read-only-tmpfs=false" else empty end),
  flag("user"; $own | user($shared)),
  flag("group-add"; $shared.fsGroup),
  flag("memory"; .resources.limits.memory | memory),
  (.env // [] | .[] | flag("env"; "\(.name)=\(.value)")),
  (.volumeMounts // [] | .[] | flag("volume"; "\($dir)/\(.name):\(.mountPath):\(propagation)")),
  (if .image != "kvseal" then "--entrypoint=", $image, "sleep", "infinity"
   else (.command // [] | if length > 0 then "--entrypoint=\(.[0])" else empty end),
        $ours,
        (.command // [] | .[1:][]),
        (.args // [] | .[])
   end)
