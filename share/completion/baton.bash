# SPDX-License-Identifier: Apache-2.0
# bash completion of Baton's programs, made by tools/completions.
_baton_keys() {
    case $1 in
    baton-router) echo 'cache.public_prefix cache.replay_memory cache.thread_memory classes.class http.admin http.api_keys http.body_timeout http.congestion_control http.console http.cors_origin http.default_max_tokens http.h2c http.head_timeout http.http2 http.idle_timeout http.job_threads http.listen http.max_body http.max_connections http.max_per_address http.max_requests http.metrics http.tls_certificate http.tls_key http.tls_min http.write_timeout http.wrong_keys link.advertise link.ca link.certificate link.cluster_key link.discovery_ca link.discovery_certificate link.discovery_key link.heartbeat link.key link.listen link.names link.register link.return_grace log.format log.level log.prefixes metrics.names node.name placement.index_entries placement.index_lifetime placement.local_prefill_time placement.local_prefill_tokens placement.prefix_fetch placement.roles placement.roles_min placement.roles_period queue.max queue.refuse queue.resume_timeout queue.timeout slo.itl slo.ttft state.ca state.login state.url state.wait stop.drain_timeout stop.lame_duck stream.resume trace.sample trace.url' ;;
    baton-prefill) echo 'cache.peer_blocks cache.prefix_fetch cache.public_prefix cache.replay_memory cache.thread_memory engine.bf16 engine.convert_f16 engine.cpus engine.kernels engine.kind engine.numa engine.share_weights engine.sim_answer_tokens engine.sim_decode_seq engine.sim_prefill_token engine.sim_step engine.threads engine.tune http.admin http.api_keys http.congestion_control http.cors_origin http.h2c http.http2 http.listen http.metrics http.tls_certificate http.tls_key http.tls_min kv.block_tokens kv.disk_lifetime kv.disk_path kv.disk_size kv.disk_threads kv.grant_timeout kv.lifetime kv.memory kv.populate kv.rdma_devices kv.rdma_rest kv.remote kv.remote_ca kv.remote_flush kv.remote_lifetime kv.remote_login kv.remote_threads kv.tcp_connections kv.tcp_encrypt kv.tcp_listen kv.transport kv.type kv.unix_path link.advertise link.ca link.certificate link.cluster_key link.discovery_ca link.discovery_certificate link.discovery_key link.heartbeat link.key link.listen link.names link.peers link.register link.routers log.format log.level metrics.names model.context model.name model.path node.name node.role sched.batch_tokens sched.chunk_tokens sched.draft_memory sched.draft_model sched.draft_tokens sched.itl sched.max_queue sched.max_seqs sched.mtp sched.speculate stop.drain_timeout stop.lame_duck stream.grace stream.kept_memory stream.tail_memory trace.sample trace.url' ;;
    baton-decode) echo 'cache.peer_blocks cache.prefix_fetch cache.public_prefix cache.replay_memory cache.thread_memory engine.bf16 engine.convert_f16 engine.cpus engine.kernels engine.kind engine.numa engine.share_weights engine.sim_answer_tokens engine.sim_decode_seq engine.sim_prefill_token engine.sim_step engine.threads engine.tune http.admin http.api_keys http.congestion_control http.cors_origin http.h2c http.http2 http.listen http.metrics http.tls_certificate http.tls_key http.tls_min kv.block_tokens kv.disk_lifetime kv.disk_path kv.disk_size kv.disk_threads kv.grant_timeout kv.lifetime kv.memory kv.populate kv.rdma_devices kv.rdma_rest kv.remote kv.remote_ca kv.remote_flush kv.remote_lifetime kv.remote_login kv.remote_threads kv.tcp_connections kv.tcp_encrypt kv.tcp_listen kv.transport kv.type kv.unix_path link.advertise link.ca link.certificate link.cluster_key link.discovery_ca link.discovery_certificate link.discovery_key link.heartbeat link.key link.listen link.names link.peers link.register link.routers log.format log.level metrics.names model.context model.name model.path node.name node.role sched.batch_tokens sched.chunk_tokens sched.draft_memory sched.draft_model sched.draft_tokens sched.itl sched.max_queue sched.max_seqs sched.mtp sched.speculate stop.drain_timeout stop.lame_duck stream.grace stream.kept_memory stream.tail_memory trace.sample trace.url' ;;
    esac
}
_baton_table() {
    options= words= files= values=
    case $1 in
    'baton') options='' words='run chat bench model plan sim setup ctl router prefill decode' files='''' values='''' ;;
    'baton run') options='-m --model -p --prompt -s --system -n --max-tokens -c --context -t --threads --kv-memory --offline --port --relay --both --once -h --help' words='' files='-m|--model' values='-p|--prompt|-s|--system|-n|--max-tokens|-c|--context|-t|--threads|--kv-memory|--port' ;;
    'baton chat') options='' words='' files='''' values='''' ;;
    'baton bench') options='' words='' files='''' values='''' ;;
    'baton model') options='' words='' files='''' values='''' ;;
    'baton plan') options='' words='' files='''' values='''' ;;
    'baton sim') options='' words='' files='''' values='''' ;;
    'baton setup') options='' words='' files='''' values='''' ;;
    'baton ctl') options='' words='' files='''' values='''' ;;
    'baton router') options='' words='' files='''' values='''' ;;
    'baton prefill') options='' words='' files='''' values='''' ;;
    'baton decode') options='' words='' files='''' values='''' ;;
    'batonctl') options='-a --admin -c --cluster --discovery-ca --discovery-certificate --discovery-key -k --cluster-key -h --help -V --version' words='status daemons top why trace report metrics drain undrain role reload new-key keys metrics-token admin-token token join check new-cluster-key key' files='--discovery-ca|--discovery-certificate|--discovery-key|-k|--cluster-key' values='-a|--admin|-c|--cluster' ;;
    'batonctl status') options='-j --json -l --line -h --help' words='' files='''' values='''' ;;
    'batonctl daemons') options='-j --json -h --help' words='' files='''' values='''' ;;
    'batonctl top') options='-i --interval -h --help' words='' files='''' values='-i|--interval' ;;
    'batonctl why') options='-j --json -h --help' words='' files='''' values='''' ;;
    'batonctl trace') options='-j --json -h --help' words='' files='''' values='''' ;;
    'batonctl report') options='-h --help' words='' files='''' values='''' ;;
    'batonctl metrics') options='-h --help' words='' files='''' values='''' ;;
    'batonctl drain') options='-m --move -w --wait -t --timeout -h --help' words='' files='''' values='-t|--timeout' ;;
    'batonctl undrain') options='-h --help' words='' files='''' values='''' ;;
    'batonctl role') options='-h --help' words='' files='''' values='''' ;;
    'batonctl reload') options='-d --diff -j --json -h --help' words='' files='''' values='''' ;;
    'batonctl new-key') options='-t --tenant -i --id -h --help' words='' files='''' values='-t|--tenant|-i|--id' ;;
    'batonctl keys') options='-h --help' words='' files='''' values='''' ;;
    'batonctl metrics-token') options='-h --help' words='' files='''' values='''' ;;
    'batonctl admin-token') options='-h --help' words='' files='''' values='''' ;;
    'batonctl token') options='-l --listen -t --lifetime -h --help' words='' files='''' values='-l|--listen|-t|--lifetime' ;;
    'batonctl join') options='-t --token -r --replace -h --help' words='' files='''' values='-t|--token' ;;
    'batonctl check') options='-j --json -h --help' words='' files='''' values='''' ;;
    'batonctl new-cluster-key') options='-h --help' words='' files='''' values='''' ;;
    'batonctl key') options='-j --json -h --help' words='' files='''' values='''' ;;
    'baton-chat') options='-u --url -m --model -s --system -n --max-tokens -T --temperature --top-p --seed --api-key --ask --tools --test --max-rounds -t --timings -h --help -V --version' words='' files='''' values='-u|--url|-m|--model|-s|--system|-n|--max-tokens|-T|--temperature|--top-p|--seed|--api-key|--ask|--test|--max-rounds' ;;
    'baton-bench') options='-u --url -m --model --api-key -c --concurrency -r --rate --trace --speed -n --requests -d --duration -p --prompt-tokens -a --answer-tokens --shared-prefix-tokens --seed --warmup --timeout --temperature --ttft-slo --itl-slo --json --save-detailed -h --help -V --version' words='' files='--trace|--save-detailed' values='-u|--url|-m|--model|--api-key|-c|--concurrency|-r|--rate|--speed|-n|--requests|-d|--duration|-p|--prompt-tokens|-a|--answer-tokens|--shared-prefix-tokens|--seed|--warmup|--timeout|--temperature|--ttft-slo|--itl-slo' ;;
    'baton-model') options='' words='info tokenize detokenize render logits generate make quantize imatrix pull split merge perplexity bench' files='''' values='''' ;;
    'baton-model info') options='--keys --tensors --json --help' words='' files='''' values='''' ;;
    'baton-model tokenize') options='--file --special --bos --pieces --count --time --help' words='' files='--file' values='''' ;;
    'baton-model detokenize') options='--special --continue --help' words='' files='''' values='''' ;;
    'baton-model render') options='--file --user --system --template --ids --no-generation --continue --thinking --help' words='' files='--file|--template' values='--user|--system' ;;
    'baton-model logits') options='--ids --prompt --special --top --out --every --kv -t --threads --kernels --bf16 --convert-f16 -h --help' words='' files='--out' values='--ids|--prompt|--top|--kv|-t|--threads|--kernels|--bf16|--convert-f16' ;;
    'baton-model generate') options='-m --model -p --prompt --chat -s --system --from-ids --special -n --max-tokens --greedy --temperature --top-k --top-p --min-p --seed --ids --ignore-stop --quiet --speculate --draft-model --kv -t --threads --kernels --bf16 --convert-f16 -h --help' words='' files='-m|--model|--draft-model' values='-p|--prompt|--chat|-s|--system|--from-ids|-n|--max-tokens|--temperature|--top-k|--top-p|--min-p|--seed|--speculate|--kv|-t|--threads|--kernels|--bf16|--convert-f16' ;;
    'baton-model make') options='--arch --layers --hidden --heads --kv-heads --head-dim --ffn --vocab --vocab-from --context --type --tied --with --set --seed --help' words='' files='--vocab-from' values='--arch|--layers|--hidden|--heads|--kv-heads|--head-dim|--ffn|--vocab|--context|--type|--with|--set|--seed' ;;
    'baton-model quantize') options='--type --output-type --embedding-type --imatrix --pure --threads --verbose --force --help' words='' files='--imatrix' values='--type|--output-type|--embedding-type|--threads' ;;
    'baton-model imatrix') options='--text --special --context --windows --threads --kernels --force --help' words='' files='--text' values='--context|--windows|--threads|--kernels' ;;
    'baton-model pull') options='--to --offline --connections --timeout --sha256 --quiet --help' words='' files='--to' values='--connections|--timeout|--sha256' ;;
    'baton-model split') options='--parts --force --help' words='' files='''' values='--parts' ;;
    'baton-model merge') options='--force --help' words='' files='''' values='''' ;;
    'baton-model perplexity') options='--text --special --context --stride --windows --kl --kl-keep --kl-kv --kv -t --threads --kernels --json -h --help' words='' files='--text|--kl-keep' values='--context|--stride|--windows|--kl|--kl-kv|--kv|-t|--threads|--kernels' ;;
    'baton-model bench') options='--pp --tg --batch --depth --chunk --repeat --kv -t --threads --kernels --bf16 --convert-f16 --tune --json -h --help' words='' files='''' values='--pp|--tg|--batch|--depth|--chunk|--repeat|--kv|-t|--threads|--kernels|--bf16|--convert-f16' ;;
    'baton-plan') options='' words='plan simulate sweep ratio devices links models validate calibrate' files='''' values='''' ;;
    'baton-plan plan') options='-m --model -d --device --prefill-device --decode-device -w --weights --kv --engine --isl --osl --hit -r --rate --growth --trace --ttft --itl --percentile --link --whole-transfer --reserve --load --spare --price --tp --wide-ep -c --constants --devices --json --explain --html --conf' words='' files='-m|--model|--trace|-c|--constants|--html|--conf' values='-d|--device|--prefill-device|--decode-device|-w|--weights|--kv|--engine|--isl|--osl|--hit|-r|--rate|--growth|--ttft|--itl|--percentile|--link|--reserve|--load|--spare|--price|--tp' ;;
    'baton-plan simulate') options='--rank --prefill --decode --search --seed --json -h --help' words='' files='''' values='--rank|--prefill|--decode|--search|--seed' ;;
    'baton-plan sweep') options='--vary --values --rank --total --seed --json -h --help' words='' files='''' values='--vary|--values|--rank|--total|--seed' ;;
    'baton-plan ratio') options='--per' words='' files='''' values='--per' ;;
    'baton-plan devices') options='' words='' files='''' values='''' ;;
    'baton-plan links') options='' words='' files='''' values='''' ;;
    'baton-plan models') options='' words='' files='''' values='''' ;;
    'baton-plan validate') options='-c --constants -g --generic -x --cross -d --devices -m --models --model -j --json' words='' files='-c|--constants|-d|--devices|-m|--models|--model' values='-x|--cross' ;;
    'baton-plan calibrate') options='-o --output -n --name -c --constants -d --devices -m --models -u --url --model --device --weights --split --served --time --measured --points' words='' files='-o|--output|-c|--constants|-d|--devices|-m|--models|--model|--measured' values='-n|--name|-u|--url|--device|--weights|--served|--time|--points' ;;
    'baton-sim') options='--trace --speed --replicas --requests --generate --rate --duration --prompt --answer --equal-lengths --shared --tenants --turns --wait --period --rate2 --prompt2 --answer2 --two-tenants --via --via2 --cancel --seed --preset --prefill --decode --both --seats --kv-tokens --disk-tokens --disk-rate --nic --kv-bytes --layers --latency --block --chunk --batch --sched-itl --prefill-times --decode-times --costs --in-order --measured --rigid --slow --host-cores --host-workers --host-slice --core-drag --token-cpu --request-cpu --noise --start --crash-every --routers --policy --prefix-fetch --ttft --itl --class --class2 --refuse --queue --queue-timeout --local-tokens --local-time --index --roles --roles-min --roles-period --heartbeat --report-delay --json --columns' words='' files='--trace|--measured' values='--speed|--replicas|--requests|--generate|--rate|--duration|--prompt|--answer|--shared|--tenants|--turns|--wait|--period|--rate2|--prompt2|--answer2|--via|--via2|--cancel|--seed|--preset|--prefill|--decode|--both|--seats|--kv-tokens|--disk-tokens|--disk-rate|--nic|--kv-bytes|--layers|--latency|--block|--chunk|--batch|--sched-itl|--prefill-times|--decode-times|--slow|--host-cores|--host-workers|--host-slice|--core-drag|--token-cpu|--request-cpu|--noise|--start|--crash-every|--routers|--policy|--prefix-fetch|--ttft|--itl|--class|--class2|--refuse|--queue|--queue-timeout|--local-tokens|--local-time|--index|--roles|--roles-min|--roles-period|--heartbeat|--report-delay|--columns' ;;
    'baton-setup') options='-r --role -m --model -R --router -a --address --http --api-keys -n --name -t --threads --kv-memory --prefill-workers -d --dir --start --dry-run -y --yes -h --help -V --version' words='' files='-m|--model|--api-keys|-d|--dir' values='-r|--role|-R|--router|-a|--address|--http|-n|--name|-t|--threads|--kv-memory|--prefill-workers' ;;
    'baton-router') options='-c --config -s --set --check-config --dump-config --sample-config --manual-keys -h --help -V --version' words='' files='-c|--config' values='-s|--set' ;;
    'baton-prefill') options='-c --config -s --set --check-config --dump-config --sample-config --manual-keys --tune -h --help -V --version' words='' files='-c|--config' values='-s|--set' ;;
    'baton-decode') options='-c --config -s --set --check-config --dump-config --sample-config --manual-keys --tune -h --help -V --version' words='' files='-c|--config' values='-s|--set' ;;
    *) return 1 ;;
    esac
}
_baton() {
    local program=${COMP_WORDS[0]##*/} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} at=1 options words files values
    if [ "$program" = baton ]; then
        case ${COMP_WORDS[1]} in
        chat) [ $COMP_CWORD -eq 1 ] || { program=baton-chat; at=2; } ;;
        bench) [ $COMP_CWORD -eq 1 ] || { program=baton-bench; at=2; } ;;
        model) [ $COMP_CWORD -eq 1 ] || { program=baton-model; at=2; } ;;
        plan) [ $COMP_CWORD -eq 1 ] || { program=baton-plan; at=2; } ;;
        sim) [ $COMP_CWORD -eq 1 ] || { program=baton-sim; at=2; } ;;
        setup) [ $COMP_CWORD -eq 1 ] || { program=baton-setup; at=2; } ;;
        ctl) [ $COMP_CWORD -eq 1 ] || { program=batonctl; at=2; } ;;
        router) [ $COMP_CWORD -eq 1 ] || { program=baton-router; at=2; } ;;
        prefill) [ $COMP_CWORD -eq 1 ] || { program=baton-prefill; at=2; } ;;
        decode) [ $COMP_CWORD -eq 1 ] || { program=baton-decode; at=2; } ;;
        esac
    fi
    _baton_table "$program" || return
    local i
    for ((i = at; i < COMP_CWORD; i++)); do
        case " $words " in *" ${COMP_WORDS[i]} "*) _baton_table "$program ${COMP_WORDS[i]}"; break ;; esac
    done
    case $before in
    -s | --set) case $program in baton-router | baton-prefill | baton-decode)
        compopt -o nospace
        COMPREPLY=($(compgen -S = -W "$(_baton_keys "$program")" -- "$word"))
        return ;;
    esac ;;
    esac
    case "|$files|" in *"|$before|"*) compopt -o default; COMPREPLY=(); return ;; esac
    case "|$values|" in *"|$before|"*) COMPREPLY=(); return ;; esac
    case $word in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) COMPREPLY=($(compgen -W "$words" -- "$word")); [ -n "$words" ] || compopt -o default ;;
    esac
}
complete -F _baton baton batonctl baton-chat baton-bench baton-model baton-plan baton-sim baton-setup baton-router baton-prefill baton-decode
