process THDPACK_PREPROCESS {
    tag "$meta.id"
    label 'process_high'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(fasta, stageAs: 'inputs/*')

    output:
    tuple val(meta), path("${prefix}"), emit: dataset
    path "versions.yml"               , emit: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    prefix   = task.ext.prefix ?: "${meta.id}"
    """
    thdpack preprocess \\
        $fasta \\
        --out $prefix \\
        --workers $task.cpus \\
        $args

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        thdpack: \$(thdpack --version | sed 's/^thdpack //')
    END_VERSIONS
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    mkdir -p $prefix/train $prefix/records
    touch $prefix/manifest.json

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        thdpack: \$(thdpack --version | sed 's/^thdpack //')
    END_VERSIONS
    """
}
