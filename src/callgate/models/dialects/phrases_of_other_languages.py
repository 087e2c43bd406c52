"""Phrases of other languages than English with which a model announces an example of a call, or says that it looks for one.

Examines one sentence of prose. Used by `example_phrases`, which knows the phrases in English.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EXAMPLE_WORDS", "seeks_example", "states_example"]

EXAMPLE_WORDS: Final = r"(?:beispiel|voorbeeld)\w*|exemples?|ejemplos?|exemplos?|esempio|esempi"
"""The alternatives of a pattern for the word in German, Dutch, French, Spanish, Portuguese and Italian."""
_EXAMPLE = rf"(?:{EXAMPLE_WORDS}|пример\w*)"
_SUBJECT = rf"(?:{_EXAMPLE}|formate?s?|formatos?|syntaxe?|sintaxis|sintassi|verwendung|utilisation|uso)"
_WORDS = r"(?:(?!(?:zum|par|por|per|na)\b)[\w'\u2019]+ ){0,3}?"
_SUCHEN = r"(?:suchen|prüfen|lesen|öffnen|finden|ansehen|anschauen|nachsehen|abrufen)"
_CHERCHER = r"(?:chercher?|rechercher?|regarder?|vérifier?|consulter?|ouvrir|ouvre|trouver?|lire|lis|examiner?)"
_BUSCAR = r"(?:buscar|revisar|comprobar|verificar|consultar|encontrar|leer|examinar|abrir)"
_PROCURAR = r"(?:procurar|buscar|verificar|consultar|encontrar|ler|examinar|abrir|pesquisar)"
_CERCARE = r"(?:cercare|controllare|verificare|consultare|trovare|leggere|esaminare|aprire)"
_SEEKS = re.compile(
    rf"\b(?:suche|prüfe|lese|öffne|finde|schaue|sehe) (?:(?:ich|wir|mir|uns) )*{_WORDS}{_SUBJECT}\b"
    rf"|\b(?:ich|wir|mich|uns) {_WORDS}{_SUBJECT} {_SUCHEN}\b|, ich (?:suche|prüfe|lese|öffne|schaue|sehe)\b[^:]*:\W*$"
    rf"|\b(?:je|laissez-moi|laisse-moi|permettez-moi de) (?:(?:vais|dois|veux|peux) )?(?:d['\u2019]abord )?{_CHERCHER} {_WORDS}{_SUBJECT}\b"
    rf"|\b(?:re)?cherchons {_WORDS}{_SUBJECT}\b"
    rf"|\b(?:(?:voy|vamos) a|déjame|permíteme|quiero|necesito|debo) {_BUSCAR} {_WORDS}{_SUBJECT}\b"
    rf"|\b(?:busco|reviso|compruebo|consulto|leo|busquemos) {_WORDS}{_SUBJECT}\b"
    rf"|\b(?:vou|vamos|deixe-me|deixa-me|preciso|quero) {_PROCURAR} {_WORDS}{_SUBJECT}\b|\bprocuro {_WORDS}{_SUBJECT}\b"
    rf"|\b(?:vado a|fammi|lasciami|devo|voglio) {_CERCARE} {_WORDS}{_SUBJECT}\b|\b(?:cerco|controllo|leggo) {_WORDS}{_SUBJECT}\b"
    rf"|\b(?:ищу|поищу|найду|посмотрю|проверю|открою|прочитаю) {_WORDS}(?:{_EXAMPLE}|формат\w*)"
    r"|我(?!们)(?![^\uff0c。\uff1a:]{0,6}给)[^\uff0c。\uff1a:]{0,6}(?:搜索|查找|查看|查询|查一下|看看|看一下|寻找|找|检查|读取)[^\uff0c。\uff1a:]{0,12}"
    r"(?:例子?|示例|用法|格式|调用(?:方法|方式))"
    r"|(?:例|使い方|呼び出し方|書き方|フォーマット)を(?:探し|検索し|調べ|確認し|読み)(?:ます|てみます)",
    re.IGNORECASE,
)
"""Matches a sentence in which the model looks for an example or a format: the call after it is made."""
_HERE_IS = (
    r"(?:hier (?:ist|sind|folgt|kommt)|(?:das|dies) (?:ist|wäre)|hier is|dit is|voici|c['\u2019]est|aquí (?:tienes|tiene|hay|está|va)"
    r"|est[eo] es|ecco|questo è|aqui (?:está|tem|vai)|est[eá] é|isto é|вот)"
)
_NOT = r"(?:kein\w*|nicht|geen|niet|pas|no|non|não|nur)"
_STATES = re.compile(
    rf"^\W*{_HERE_IS} (?:(?!{_NOT}\b)\w+ ){{0,2}}{_EXAMPLE}(?: [\w'\u2019]+){{0,6}}\W*$"
    r"|\b(?:appels?|llamadas?|chamadas?|chiamat[ae])\b[^.:]{0,60} (?:ressemble(?:nt)? à (?:ceci|cela|ça)|se ven? así|é assim|è così)\W*$"
    r"|^\W*(?:这|以下|下面)就?是[^\uff0c。\uff1a:]{0,12}(?:示例|例子)\W*$"
    r"|^\W*(?:以下|これ|次)[はが][^、。\uff1a:]{0,12}例(?:です|となります|になります)?\W*$|例を(?:示し|挙げ|見せ|紹介し)ます\W*$",
    re.IGNORECASE,
)
"""Matches a sentence that announces an example, also without a colon."""


def seeks_example(sentence: str) -> bool:
    """Whether the model says that it looks for an example, or for the format of something."""
    return _SEEKS.search(sentence) is not None


def states_example(sentence: str) -> bool:
    """Whether a sentence says that an example follows."""
    return _STATES.search(sentence) is not None
