# SPDX-License-Identifier: Apache-2.0
# Rules for the manifests that no schema states. False: exit 1, with the broken ones' names before.

def check($name; condition): if condition then true else ("broken: " + $name | debug | false) end;

def all_containers: (.initContainers // [] | .[]), .containers[];

[.[] | .spec as $workload | .spec.template as $template | $template.spec
 | [all_containers] as $containers
 | check("the selector finds the pods";
     $workload.selector.matchLabels == $template.metadata.labels),
   check("each volume that is mounted exists, and each that exists is mounted";
     ([$containers[].volumeMounts // [] | .[].name] | unique) == ([.volumes[].name] | unique)),
   check("Bidirectional propagation is for privileged containers only";
     all($containers[]; .securityContext.privileged == true
       or all(.volumeMounts // [] | .[]; .mountPropagation != "Bidirectional"))),
   check("privilege is for those that mount, only";
     all($containers[]; .securityContext.privileged != true
       or any(.volumeMounts[]; .mountPropagation == "Bidirectional"))),
   check("no container of ours writes into its image";
     all($containers[] | select(.image == "kvseal"); .securityContext.readOnlyRootFilesystem)),
   check("a daemon has a startup probe, a liveness probe and a port for its metrics, and is scraped there";
     all($containers[] | select(any(.args // [] | .[]; contains("metrics=")));
       .startupProbe.exec and .livenessProbe.exec
       and ("\(.ports[0].containerPort)" == $template.metadata.annotations["prometheus.io/port"])
       and any(.args[]; test("metrics=0.0.0.0:\($template.metadata.annotations["prometheus.io/port"])(,|$)")))),
   check("a pod that stores blocks has longer than the daemon's grace of 10 seconds";
     (any($containers[]; any(.args // [] | .[]; . == "/source")) | not)
       or .terminationGracePeriodSeconds >= 15),
   check("vLLM's root_dir is the mount point, and the mount point is below the volume";
     all($containers[] | select(.name == "vllm"); any(.args[]; test("\"root_dir\":\"/kv/cache\""))
       and any(.volumeMounts[]; .mountPath == "/kv" and .mountPropagation == "HostToContainer"))),
   check("vLLM's settings are JSON";
     all($containers[] | select(.name == "vllm") | .args[] | select(startswith("--kv-transfer-config="));
       ltrimstr("--kv-transfer-config=") | fromjson | type == "object"))
] | all
