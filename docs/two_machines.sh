#!/usr/bin/env bash
# Does what docs/two-machines.md says, over two network namespaces (needs root, ip, openssl, curl, jq).
# The coordinator is alone in one; three hospitals, each with a home of its own, are in the other.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
veilgp="${VEILGP:-$here/.venv/bin/veilgp}"
python="$(dirname "$veilgp")/python"
work=$(mktemp -d)
cd "$here"
export OMP_NUM_THREADS=1
cleanup() { kill $(jobs -p) 2>/dev/null || true; ip netns del vgp-c 2>/dev/null || true; ip netns del vgp-h 2>/dev/null || true; }
trap cleanup EXIT

ip netns add vgp-c; ip netns add vgp-h
ip link add vgp0 netns vgp-c type veth peer name vgp1 netns vgp-h
for side in "vgp-c vgp0 10.77.0.1" "vgp-h vgp1 10.77.0.2"; do
    set -- $side
    ip -n "$1" addr add "$3/24" dev "$2"; ip -n "$1" link set "$2" up; ip -n "$1" link set lo up
done
coordinator() { ip netns exec vgp-c "$@"; }
hospital() { ip netns exec vgp-h "$@"; }

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=10.77.0.1 \
    -addext "subjectAltName=IP:10.77.0.1" -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
url=https://10.77.0.1:8443
coordinator "$veilgp" serve --host 0.0.0.0 --port 8443 --data-dir "$work/coordinator" \
    --tls-certificate "$work/cert.pem" --tls-key "$work/key.pem" --public-url $url > "$work/serve.log" 2>&1 &
ask() { hospital curl -sS --fail-with-body --cacert "$work/cert.pem" -H "Authorization: Bearer $token" "$@"; }
for _ in $(seq 60); do hospital curl -s --cacert "$work/cert.pem" $url/healthz > /dev/null && break; sleep 1; done
token=$(grep -o 'vgp_admin_[A-Za-z0-9_-]*' "$work/serve.log")

"$python" - "$work" <<'PY'
import json, sys
import pyarrow as pa, pyarrow.csv
from benchmarks import hospitals
for mix in hospitals.MIXES[:3]:
    pyarrow.csv.write_csv(pa.table(hospitals.patients(mix, 1000, 0)), f"{sys.argv[1]}/{mix.name}.csv")
json.dump(hospitals.SCHEMA, open(f"{sys.argv[1]}/schema.json", "w"))
PY
names="childrens geriatric trauma"
for name in $names; do
    "$veilgp" check "$work/$name.csv" --schema "$work/schema.json"
    "$veilgp" identity --name "$name" --home "$work/$name" > "$work/$name.txt"
done
"$veilgp" roster $(printf "$work/%s.txt " $names) > "$work/roster.json"

session=$(ask $url/sessions --json "{\"name\": \"length of stay\", \"schema\": $(cat "$work/schema.json"), \"kernel\": {\"hidden\": [16], \"samples\": 50, \"seed\": 1},
 \"stages\": [{\"algorithm\": \"moments\"}, {\"algorithm\": \"exact\", \"parameters\": {\"steps\": 5, \"penalties\": [3.0]}}, {\"algorithm\": \"linear\"}, {\"algorithm\": \"recalibration\"}, {\"algorithm\": \"evaluation\"}],
 \"max_rows\": 10000, \"held_out\": 0.2, \"least_rows\": 2200, \"members\": 3, \"privacy\": {\"differential_privacy\": false}, \"model\": \"served\"}" | jq -r .id)
for name in $names; do
    link=$(ask $url/sessions/$session/invitations --json "{\"name\": \"$name\"}" | jq -r .link)
    hospital "$veilgp" policy draft "$link" "$work/$name.csv" --ca "$work/cert.pem" --home "$work/$name"
    hospital "$veilgp" approve "$link" --roster "$work/roster.json" --ca "$work/cert.pem" --home "$work/$name" > "$work/$name.approved"
    hospital "$veilgp" join "$link" "$work/$name.csv" \
        --ca "$work/cert.pem" --home "$work/$name" --save "$work/models-$name" --once > "$work/$name.log" 2>&1 &
done
sleep 5
for name in $names; do ask -X PATCH $url/sessions/$session/members/$name --json '{"status": "approved"}' > /dev/null; done
run=$(ask $url/sessions/$session/runs --json '{"kind": "train"}' | jq -r .id)
while status=$(ask $url/runs/$run | jq -r .status); [[ $status == waiting || $status == running ]]; do sleep 2; done
model=$(ask $url/runs/$run | jq -r .model)
echo "the run is $status; its model is $model"
caller=$(ask $url/callers --json "{\"name\": \"ward\", \"models\": [\"$model\"]}" | jq -r .token)
token=$caller ask $url/predict --json "{\"model\": \"$model\", \"intervals\": [0.9], \"records\": [{\"age\": 61, \"heart_rate\": 90, \"systolic\": 120, \"lactate\": null, \"comorbidities\": 2, \"ward\": \"medical\"}]}" | jq -c .
while pgrep -f "client_sdk.* join|veilgp join" > /dev/null; do sleep 1; done
"$veilgp" predict "$work/models-trauma/$model" "$work/trauma.csv" --interval 0.9 | head -3
"$veilgp" log --summary --home "$work/trauma"
