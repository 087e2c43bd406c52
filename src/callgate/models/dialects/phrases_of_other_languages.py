"""Phrases of other languages than English: a model announces an example of a call or looks for one, refuses a call, or quotes a text.

Examines one sentence of prose. Used by `example_phrases`, which knows the phrases in English.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EXAMPLE_WORDS", "asks_approval", "quotes_text", "refuses_call", "seeks_example", "states_example"]

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

_CLAUSE = r"[^.:;,]*"
_REFUSES = re.compile(
    # Ich führe das nicht aus:
    rf"\b(?:ich|wir)\b{_CLAUSE}\bnicht\b{_CLAUSE}\b(?:aus|auf|(?:aus|durch)führen|aufrufen|senden|machen|verwenden)\W*$"
    r"|\b(?:ich|wir) ignorier\w* (?:sie|es|ihn|das|(?:dies\w*|die|den|das) \w+)\W*$"
    rf"|\bik\b{_CLAUSE}\bniet\b{_CLAUSE}\b(?:uit|aan|uitvoeren|aanroepen|versturen|doen)\W*$"
    # Je ne vais pas exécuter ceci :
    rf"|\b(?:je|nous) ne? ?['\u2019]?{_CLAUSE}\bpas\b{_CLAUSE}\b(?:exécuter|appeler|lancer|utiliser|envoyer|faire)\b{_CLAUSE}:\W*$"
    rf"|\bje (?:n['\u2019]|ne )(?:exécute|appelle|lance|utilise|envoie) pas\b{_CLAUSE}:\W*$"
    r"|\bj['\u2019]ignore (?:ce|cet|cette|ces) \w+\W*$"
    # No voy a ejecutar esto:
    rf"|\bno (?:(?:(?:voy|vamos) a|puedo|debo|quiero) (?:ejecutar|llamar|invocar|enviar|hacer)|ejecuto|ejecutaré)\b{_CLAUSE}:\W*$"
    rf"|\bnão (?:(?:vou|vamos|posso|devo|quero) (?:executar|chamar|invocar|enviar|fazer)|executarei|executo)\b{_CLAUSE}:\W*$"
    rf"|\bnon (?:(?:posso|devo|voglio|intendo) (?:eseguire|chiamare|inviare|fare)|eseguirò|eseguo)\b{_CLAUSE}:\W*$"
    rf"|\b(?:не (?:буду|стану|могу) (?:\w+ )?(?:выполнять|вызывать|запускать|отправлять|делать)|игнорирую \w+)\b{_CLAUSE}:\W*$"
    r"|不(?:会|能|应该?|要|可以)?[^\uff0c。\uff1a:]{0,4}(?:执行|调用|运行|发送)[^\uff0c。\uff1a:]{0,5}[\uff1a:]\W*$"
    r"|我(?:会|将|选择)?忽略[^\uff0c。\uff1a:]{0,8}[\uff1a:]\W*$"
    r"|(?:実行|送信|使用)(?:しません|しない|できません)[^、。]{0,4}[\uff1a:]\W*$|呼び出しません[\uff1a:]\W*$|無視します[\uff1a:]\W*$"
    r"|(?:실행|호출|전송)(?:하지|할 수)[^.,:]{0,10}[:\uff1a]\W*$",
    re.IGNORECASE,
)
"""Matches a line with which the model says that it does not make the call that follows."""
_QUOTES = re.compile(
    rf"\b(?:datei|dokument|seite|e-?mail|nachricht|website|readme|werkzeug|tool|ergebnis|ausgabe|protokoll)\b{_CLAUSE}"
    r"\b(?:enthält|enthielt|lautete?|steht|stand|war|(?:zurück|aus)gegeben|sagte?|zeigte?)\W*$"
    rf"|\b(?:nutzer|benutzer|anwender|autor)\b{_CLAUSE}\b(?:schrieb|sagte|geschrieben)\W*$"
    rf"|\b(?:fichier|document|page|message|courriel|e-?mail|outil|résultat|sortie|site)\b{_CLAUSE}"
    rf"\b(?:contient|contenait|dit|indique|renvoyé|retourné|était|affiche)\b{_CLAUSE}:\W*$|\butilisateur a écrit\W*$"
    rf"|\b(?:archivo|fichero|documento|página|mensaje|correo|herramienta|resultado|salida|sitio)\b{_CLAUSE}"
    r"\b(?:contiene|contenía|dice|decía|devolvió|era|muestra|mostró)\W*$|\busuario escribió\W*$"
    rf"|\b(?:arquivo|ficheiro|documento|página|mensagem|e-?mail|ferramenta|resultado|saída)\b{_CLAUSE}"
    r"\b(?:contém|continha|diz|dizia|retornou|devolveu|era|mostra)\W*$|\busuário escreveu\W*$"
    rf"|\b(?:file|documento|pagina|messaggio|strumento|risultato|output)\b{_CLAUSE}"
    r"\b(?:contiene|conteneva|dice|diceva|restituito|era|mostra)\W*$"
    rf"|\b(?:bestand|document|pagina|bericht|uitvoer|resultaat)\b{_CLAUSE}\b(?:bevat|bevatte|zegt|was|luidt|toont)\W*$"
    rf"|\b(?:файл|документ|страниц|сообщени|инструмент|вывод)\w*{_CLAUSE}\b(?:содержит|содержал\w*|вернул\w*|гласит|был\w*)\W*$"
    r"|(?:文件|文档|页面|网页|邮件|消息|工具|结果|日志)(?:的|里|中|内)?[^\uff0c。\uff1a:]{0,4}"
    r"(?:内容|返回|包含|显示|写着|写道)(?:了|如下|为|是)?[\uff1a:]\W*$"
    r"|(?:ファイル|文書|ページ|メール|メッセージ|ツール|ログ)[のにはが][^、。]{0,6}"
    r"(?:内容|出力|書かれて|含まれて|返し|返され)[^、。]{0,6}[\uff1a:]\W*$",
    re.IGNORECASE,
)
"""Matches a line that announces what a text contains."""
_OWN_WORK = re.compile(
    r"\b(?:ich|wir|uns|je|nous|laissez-moi|ik|voy|vamos|veamos|quiero|necesito|vou|preciso|deixe-me|vado|vedo|vediamo|devo|voglio|я|мы"
    r"|посмотрю|проверю|открою|прочитаю)\b|\bj['\u2019]|[我让先]|查看|读取|获取|检查|打开|查询|確認|読み|調べ|取得|見て",
    re.IGNORECASE,
)
"""Matches a line about what the model does itself."""
_ASKS = re.compile(
    r"\b(?:soll|darf) ich\b[^.?!]*\b(?:ausführen|aufrufen|senden|machen|fortfahren)\?$"
    r"|\bmöcht(?:est du|en sie),? dass ich\b[^.?!]*\?$"
    r"|\b(?:dois|puis)-je (?:l['\u2019])?(?:exécuter|lancer|appeler|envoyer|continuer)\b[^.?!]*\?$"
    r"|\b(?:voulez-vous|veux-tu) que je\b[^.?!]*\?$"
    r"|\b(?:quieres|quiere|desea) que (?:lo )?(?:ejecute|llame|envíe|haga|continúe)\b[^.?!]*\?$"
    r"|\b(?:quer|deseja) que eu (?:execute|chame|envie|faça|continue)\b[^.?!]*\?$"
    r"|\b(?:vuoi|vuole) che (?:io )?(?:lo )?(?:esegua|chiami|invii|faccia|continui)\b[^.?!]*\?$"
    r"|(?:хотите),? чтобы я (?:выполнил|запустил|вызвал|отправил)\w*[^.?!]*\?$"
    r"|(?:要我|需要我|是否要?|可以)[^\uff0c。\uff1f?]{0,6}(?:执行|调用|运行|发送)[^\uff0c。\uff1f?]{0,8}[\uff1f?]$"
    r"|(?:実行|送信)(?:しますか|しても(?:よろしい|いい|良い)です?か)[\uff1f?]?$",
    re.IGNORECASE,
)
"""Matches a question whether the model may make the call."""


def refuses_call(line: str) -> bool:
    """Whether a line that ends in a colon says that the model does not make the call after it."""
    return _REFUSES.search(line) is not None


def quotes_text(line: str) -> bool:
    """Whether a line that ends in a colon announces what a text contains."""
    return _QUOTES.search(line) is not None and not _OWN_WORK.search(line)


def asks_approval(line: str) -> bool:
    """Whether a line asks whether the model may make the call after it."""
    return _ASKS.search(line) is not None


def seeks_example(sentence: str) -> bool:
    """Whether the model says that it looks for an example, or for the format of something."""
    return _SEEKS.search(sentence) is not None


def states_example(sentence: str) -> bool:
    """Whether a sentence says that an example follows."""
    return _STATES.search(sentence) is not None
