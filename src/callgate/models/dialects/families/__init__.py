"""The dialects, one module for each family of models, and the list of all."""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.families.apertus import APERTUS
from callgate.models.dialects.families.bare_json import BARE_JSON, FENCED_JSON, JSON_IN_TAGS, JSON_IN_TEXT
from callgate.models.dialects.families.bracketed import BRACKETED
from callgate.models.dialects.families.cohere import COHERE
from callgate.models.dialects.families.deepseek import DEEPSEEK
from callgate.models.dialects.families.deepseek_dsml import DEEPSEEK_DSML
from callgate.models.dialects.families.functionary import FUNCTIONARY
from callgate.models.dialects.families.gemma import GEMMA, GEMMA_BARE
from callgate.models.dialects.families.generic_xml import OTHER_XML
from callgate.models.dialects.families.gigachat import GIGACHAT
from callgate.models.dialects.families.glm import GLM
from callgate.models.dialects.families.granite import GRANITE
from callgate.models.dialects.families.harmony import HARMONY
from callgate.models.dialects.families.hermes import HERMES
from callgate.models.dialects.families.hunyuan import HUNYUAN
from callgate.models.dialects.families.hyperclova import HYPERCLOVA
from callgate.models.dialects.families.inkling import INKLING
from callgate.models.dialects.families.internlm import INTERNLM
from callgate.models.dialects.families.iquest import IQUEST
from callgate.models.dialects.families.jamba import JAMBA
from callgate.models.dialects.families.k2_horizon import K2_HORIZON
from callgate.models.dialects.families.kimi_k2 import KIMI_K2
from callgate.models.dialects.families.kimi_k3 import KIMI_K3
from callgate.models.dialects.families.lfm2 import LFM2
from callgate.models.dialects.families.llama_python_tag import LLAMA_PYTHON_TAG
from callgate.models.dialects.families.lm_studio import LM_STUDIO
from callgate.models.dialects.families.longcat import LONGCAT
from callgate.models.dialects.families.minicpm import MINICPM
from callgate.models.dialects.families.minimax_m2 import MINIMAX_M2
from callgate.models.dialects.families.minimax_m3 import MINIMAX_M3
from callgate.models.dialects.families.mistral import MISTRAL
from callgate.models.dialects.families.muse import MUSE
from callgate.models.dialects.families.nemotron import NEMOTRON
from callgate.models.dialects.families.olmo_xml import OLMO_XML
from callgate.models.dialects.families.phi4 import PHI4
from callgate.models.dialects.families.plamo import PLAMO
from callgate.models.dialects.families.pythonic import PYTHONIC
from callgate.models.dialects.families.qwen_agent import QWEN_AGENT
from callgate.models.dialects.families.qwen_xml import QWEN_XML
from callgate.models.dialects.families.react import REACT
from callgate.models.dialects.families.solar import SOLAR
from callgate.models.dialects.families.tool_code import TOOL_CODE

__all__ = ["ALL_DIALECTS"]

ALL_DIALECTS: tuple[Dialect, ...] = (
    LFM2,
    HERMES,
    QWEN_XML,
    GLM,
    GRANITE,
    JAMBA,
    HUNYUAN,
    MISTRAL,
    DEEPSEEK,
    DEEPSEEK_DSML,
    HARMONY,
    MUSE,
    KIMI_K2,
    KIMI_K3,
    K2_HORIZON,
    MINIMAX_M2,
    MINIMAX_M3,
    LLAMA_PYTHON_TAG,
    OLMO_XML,
    OTHER_XML,
    MINICPM,
    GEMMA,
    GEMMA_BARE,
    COHERE,
    APERTUS,
    NEMOTRON,
    INTERNLM,
    GIGACHAT,
    INKLING,
    LONGCAT,
    LM_STUDIO,
    PHI4,
    FUNCTIONARY,
    SOLAR,
    IQUEST,
    PLAMO,
    HYPERCLOVA,
    QWEN_AGENT,
    BRACKETED,
    REACT,
    TOOL_CODE,
    FENCED_JSON,
    JSON_IN_TAGS,
    BARE_JSON,
    PYTHONIC,
    JSON_IN_TEXT,
)
"""In the order in which dialects with the same opener are tried."""
