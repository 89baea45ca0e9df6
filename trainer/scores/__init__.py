"""Scores of a masked language model: `thdpack score`, and `--evaluate` of `thdpack train`.

| module | contents |
|---|---|
| likelihood.py | log-likelihood of each record, in one pass or with each residue masked |
| mutation_table.py | a table of mutants, such as those of ProteinGym, and its wild type |
| wild_type.py | the option --wild-type |
| marginals.py | scores of mutants: wild-type marginals and masked marginals |
| rank_correlation.py | Spearman's rank correlation |
| contacts.py | contact maps by categorical Jacobian |
| score_table.py | `thdpack score --mutations` |
| evaluation.py | scores of a small set at each validation of a training run |

Every probability is a softmax over all 33 tokens of the vocabulary, as transformers' logits give
it. The softmax is in fp32.
"""
