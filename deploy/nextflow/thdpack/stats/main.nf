process THDPACK_STATS {
    tag "$meta.id"
    label 'process_single'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(dataset)

    output:
    tuple val(meta), path("*.html"), emit: html
    tuple val(meta), path("*.json"), emit: json
    path "versions.yml"            , emit: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args   = task.ext.args ?: ''
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    thdpack stats \\
        $dataset \\
        --html ${prefix}.html \\
        --json ${prefix}.json \\
        $args

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        thdpack: \$(thdpack --version | sed 's/^thdpack //')
    END_VERSIONS
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.html ${prefix}.json

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        thdpack: \$(thdpack --version | sed 's/^thdpack //')
    END_VERSIONS
    """
}
